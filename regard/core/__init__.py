"""The vocabulary that everything else is written in."""

from regard.core.packages import OLDEST_TORCH  # noqa: F401  # refuses a torch that is too old, before a newer name fails

# isort: split
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
)
from regard.core.mask import OPEN, Mask
from regard.core.mixer import Mixer
from regard.core.options import check_calls
from regard.core.request import Observation
from regard.core.states import Streamed, as_state

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
