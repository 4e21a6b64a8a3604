"""The vocabulary that everything else is written in: all other packages import it from here. `__all__` is what users need."""

from regard.core.packages import (
    OLDEST_TORCH,  # refuses a torch that is too old, before a newer name fails
)

# isort: split
from regard.core.annotations import WIDEST, Range
from regard.core.capabilities import Capabilities, No, growth
from regard.core.catalog import Catalog
from regard.core.errors import (
    MissingDataError,
    OptionError,
    PathError,
    RegardError,
    ShapeError,
    StoredDataError,
    UnknownNameError,
    UnsupportedError,
    blamed,
    is_whole,
    limited,
    outline,
    shown,
    visible,
    visible_lines,
)
from regard.core.mask import CAUSAL, INTEGERS, OPEN, Mask, check_integers
from regard.core.mixer import Mixer
from regard.core.options import (
    ABOVE_0,
    BELOW_1,
    VARIADIC,
    Above0,
    Below0,
    Bound,
    CheckedModule,
    CheckedOptions,
    Count,
    Declared,
    Depth,
    Options,
    Part,
    Rate,
    Seed,
    Share,
    Whole,
    check_calls,
    check_option,
    checked,
    tuples,
)
from regard.core.pool import Pool
from regard.core.request import (
    Compaction,
    Observation,
    check_mask,
    check_place,
    check_request,
    check_tokens,
    clear,
    compacted,
    compaction,
    existing,
    first_parameter,
    marks,
    one_row,
    permute,
    restored_weights,
)
from regard.core.shapes import (
    LARGEST,
    Context,
    Keys,
    Marks,
    Mixed,
    MixedTile,
    OtherTokens,
    OwnKeys,
    OwnValues,
    Positions,
    Queries,
    Scalar,
    SharedKeys,
    SharedValues,
    TensorMap,
    Tokens,
    Values,
    Vectors,
    Weights,
    check_divisible,
    check_even,
    check_flag,
    check_positive,
    in_parts,
    is_dense,
    is_mapped,
    require_all,
)
from regard.core.states import (
    Streamed,
    as_state,
    bounded,
    longest,
    refusal,
    stamped,
    sum_names,
    tensors,
)

__all__ = [
    "OPEN",
    "Capabilities",
    "Catalog",
    "Mask",
    "MissingDataError",
    "Mixer",
    "No",
    "Observation",
    "OptionError",
    "PathError",
    "RegardError",
    "ShapeError",
    "StoredDataError",
    "Streamed",
    "UnknownNameError",
    "UnsupportedError",
    "as_state",
    "growth",
]

check_calls(globals(), ("as_state", "growth"))
