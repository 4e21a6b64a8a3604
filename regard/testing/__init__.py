"""The laws that every mixer must satisfy, for anybody's mixer.

>>> from regard.testing import check_mixer
>>> check_mixer(lambda: MyMixer(dim=24, num_heads=3))
"""

from collections.abc import Iterator

from regard.core import Mixer, check_calls
from regard.mixers import MIXERS
from regard.testing.laws import (
    cost,
    derivatives,
    door,
    formulas,
    influence,
    long,
    masks,
    packed,
    precision,
    programs,
    purity,
    streaming,
)
from regard.testing.pools import POOL_LAWS, check_pool, judge_pool
from regard.testing.scores import SCORE_LAWS, check_score
from regard.testing.subject import Blocks, Factory, Oracle, Request, Subject, made
from regard.testing.verdicts import (
    Checked,
    LawError,
    Laws,
    Verdict,
    by_name,
    judge,
    named,
    require_kept,
)

LAWS = by_name(
    door.refusals,
    formulas.reference,
    formulas.fast,
    precision.low_precision,
    precision.types,
    precision.finite,
    derivatives.derivative,
    derivatives.second_derivative,
    derivatives.transforms,
    formulas.limit,
    masks.causality,
    masks.padding,
    packed.packed,
    masks.poison,
    influence.sensitivity,
    influence.isolation,
    streaming.streaming,
    formulas.map,
    formulas.observed,
    door.batch,
    masks.empty,
    door.empty_batch,
    door.lengths,
    purity.randomness,
    purity.threads,
    purity.transfer,
    precision.autocast,
    programs.compiled,
    programs.exported,
    programs.free_length,
    cost.complexity,
    cost.training_memory,
    long.long,
)


def check_mixer(
    factory: Factory, laws: Laws = "all", *, oracle: Oracle | None = None, blocks: Blocks = "tiny"
) -> Checked:
    """Run laws on the mixers that `factory()` makes; small sizes (dim 24, num_heads 3, max_len 64) are enough.

    laws: "all", or names of LAWS. oracle: a reference function with the signature of `regard.reference.<name>`; by
    default the library's own for its own mixers. blocks: where the class has the option `impl`, and it names no
    implementation but eager, laws are run with "tiny" blocks, and "long" with those of `impl`; "own": all with those.

    Returns the names of the laws that were run, with their verdicts: `.of("cannot judge")` gives what could not be
    judged, and why. Raises LawError, whose text starts with the law's name.
    """
    subject = Subject(factory, oracle or own_oracle(made(factory, Mixer)), blocks)
    return require_kept(subject, named(laws, LAWS))


def judge_mixer(
    factory: Factory, laws: Laws = "all", *, oracle: Oracle | None = None
) -> Iterator[Verdict]:
    """The verdict of each law as it is reached; a broken law does not end the run."""
    return judge(Subject(factory, oracle or own_oracle(made(factory, Mixer))), named(laws, LAWS))


def own_oracle(mixer: Mixer) -> Oracle | None:
    """The library's oracle for its own mixers; None for a class from elsewhere."""
    if type(mixer) not in MIXERS.values():
        return None
    from regard import reference as oracles

    return getattr(oracles, mixer.name)


__all__ = [
    "LAWS",
    "POOL_LAWS",
    "SCORE_LAWS",
    "Checked",
    "LawError",
    "Request",
    "Subject",
    "Verdict",
    "check_mixer",
    "check_pool",
    "check_score",
    "judge_mixer",
    "judge_pool",
]

check_calls(globals(), __all__)
