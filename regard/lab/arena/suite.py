"""Suite: what an arena runs, as data. SUITES lists them; to add a mechanism to one is to add its name."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from regard.core import Catalog, Mixer
from regard.lab.arena.choice import Choice
from regard.lab.arena.results import Pass, Unit
from regard.lab.tasks import Digits, ListOps, StdlibBytes, Task
from regard.lab.train import TrainConfig
from regard.mixers import MIXERS

Place = Literal["encoder", "decoder", "cross"]


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """Size of the softmax model; every other has the same width and as many parameters, within 10 %."""

    dim: int = 64
    num_heads: int = 4
    num_layers: int = 2
    position: str = "sinusoidal"


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A task, with the budget and model size that every mechanism gets. The trial's seed replaces train.seed.

    place: of an encoder-decoder, which of its three mixers is compared; the other two are softmax.
    """

    task: Task
    train: TrainConfig
    size: ModelSize = field(default_factory=ModelSize)
    place: Place = "encoder"

    @property
    def title(self) -> str:
        """The task's name, that of the file that it reads where the user has named one, and the place where there are several."""
        path = getattr(self.task, "path", None)
        name = f"{self.task.name} ({Path(path).name})" if path else self.task.name
        return f"{name}, {self.place}" if self.task.kind == "translate" else name

    @property
    def causal(self) -> bool:
        """True if the mechanism sees only earlier tokens."""
        kind, place = self.task.kind, self.place
        return kind == "language_model" or (kind == "translate" and place == "decoder")


def contests(task: Task, train: TrainConfig) -> tuple[Contest, ...]:
    """One, or one for each place of an encoder-decoder."""
    places = get_args(Place) if task.kind == "translate" else ("encoder",)
    return tuple(Contest(task=task, train=train, place=place) for place in places)


@dataclass(frozen=True, kw_only=True)
class Race:
    """The timings of a suite. `seconds` go to the rounds of one pass at one length, all mechanisms together.

    rough: seconds for a first look, up to ROUGH tokens and before anything else is done.
    """

    lengths: tuple[int, ...]
    passes: tuple[Pass, ...] = ("forward", "train", "decode")
    units: tuple[Unit, ...] = ("block", "layer")
    batch: int = 1
    dim: int = 256
    num_heads: int = 4
    dtype: str = "float32"
    seconds: float = 8.0
    rough: float | None = None


@dataclass(frozen=True, kw_only=True)
class Suite:
    """mixers: names, classes or choices with options, in any mixture; or "all" in the catalogue.

    rates: learning rates. Each mechanism is trained with each from the first seed, and from the other seeds with that which
    was best on validation; none leaves the contest's own. trained: names of the mixers that are trained, all by default; the
    others are timed alone. hours: after which nothing new is begun.
    """

    name: str
    about: str
    mixers: tuple[str | type[Mixer] | Choice, ...] | Literal["all"]
    contests: tuple[Contest, ...] = ()
    seeds: tuple[int, ...] = (0,)
    rates: tuple[float, ...] = ()
    trained: tuple[str, ...] = ()
    hours: float | None = None
    race: Race | None = None

    @property
    def choices(self) -> list[Choice]:
        named = MIXERS.names() if self.mixers == "all" else self.mixers
        return [entry if isinstance(entry, Choice) else Choice(mixer=entry) for entry in named]


ROUGH = 512  # tokens at which a first look ends


def brief(*, tokens: int, batch_size: int, eval_every: int) -> TrainConfig:
    """No early stopping, so that all see the same tokens; a kill costs at most a few seconds of work."""
    return TrainConfig(
        tokens=tokens,
        batch_size=batch_size,
        lr=2e-3,
        eval_every=eval_every,
        checkpoint_every=eval_every,
        keep=1,
    )


_SHORT: dict[str, dict[str, Any]] = {  # patterns that are sparse at the lengths of the small tasks
    "local": {"window_size": 32},
    "strided": {"stride": 8},
    "longformer": {"window_size": 32},
    "bigbird": {"block_size": 16},
    "reformer": {"chunk_size": 16},
    "sinkhorn": {"block_size": 16},
    "linformer": {"num_slots": 32, "sharing": "key_value"},
    "flash": {"chunk_size": 64},
    "mixed_chunk": {"chunk_size": 64},
}


QUICK = Suite(
    name="quick",
    about="every mechanism timed, six unlike one another trained on three tasks: ten minutes on two cores, an answer in the first",
    mixers=tuple(Choice(mixer=name, options=_SHORT.get(name, {})) for name in MIXERS.names()),
    trained=("softmax", "local", "linear", "synthesizer_dense", "fnet", "gau"),
    contests=(
        Contest(
            task=ListOps(min_length=6, max_length=40, train_size=6000),
            train=brief(tokens=180_000, batch_size=32, eval_every=50),
        ),
        Contest(task=Digits(), train=brief(tokens=600_000, batch_size=32, eval_every=50)),
        Contest(
            task=StdlibBytes(length=128),
            train=brief(tokens=450_000, batch_size=16, eval_every=50),
        ),
    ),
    seeds=(0, 1, 2),
    rates=(1e-3, 4e-3),
    race=Race(lengths=(64, 128, 512, 2048), seconds=1.0, rough=0.5),
    hours=0.15,
)


def _small(task: Task, batch_size: int) -> Contest:
    """At 128 tokens and width 96 the tables of weights by position leave room for the rest of their models."""
    train = TrainConfig(
        tokens=400_000,
        batch_size=batch_size,
        lr=2e-3,
        eval_every=50,
        checkpoint_every=100,
        keep=1,
    )
    return Contest(task=task, train=train, size=ModelSize(dim=96))


SMALL = Suite(
    name="small",
    about="every mechanism of the catalogue on three tasks, lengths to 4,096: about an hour on two cores",
    mixers=tuple(Choice(mixer=name, options=_SHORT.get(name, {})) for name in MIXERS.names()),
    contests=(
        _small(ListOps(max_length=129), 32),
        _small(Digits(), 32),
        _small(StdlibBytes(length=128), 32),
    ),
    race=Race(lengths=(256, 1024, 4096), seconds=40.0),
)

SUITES: Catalog[Suite] = Catalog("suite", (QUICK, SMALL))
