"""What is compared: each mechanism of ours, and the public packages that do the same, or the nearest to it.

A pair has a scope. "core": q, k, v [B H T K] are ready, and neither side projects. "layer": each side gets x [B T D] and makes its own
projections. Targets were set before the kernels were written: the least ratio to the best peer's time, and the least share of the
machine's rate of matrix products.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import peer_layers as layers
from torch import nn

from regard.core import UnknownNameError

Scope = Literal["core", "layer"]
Pass = Literal["forward", "train"]
TOO_LONG = "not run at this length: its time or memory is out of bounds"


@dataclass(frozen=True, kw_only=True)
class Case:
    """The length and the width of both sides."""

    length: int
    causal: bool
    dim: int = 512
    num_heads: int = 8
    batch: int = 1

    @property
    def head_dim(self) -> int:
        return self.dim // self.num_heads


@dataclass(frozen=True, kw_only=True)
class Peer:
    """function: "same", or how it differs from ours. most: the longest length that is timed in a pass, for lack of memory."""

    name: str
    package: str | None  # on PyPI; None for torch's own
    build: Callable[[Case], nn.Module]
    function: str = "same"
    most: Mapping[Pass, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Target:
    """None: no target. A ratio may differ by length."""

    ratio: Mapping[int, float] | float | None = None
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Pair:
    mixer: str
    scope: Scope
    causal: bool
    targets: Mapping[Pass, Target]
    peers: tuple[Peer, ...] = ()
    options: Callable[[Case], dict[str, Any]] = lambda case: {}
    most: Mapping[Pass, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.mixer} {self.scope}{' causal' if self.causal else ''}"


def _both(ratio=None, share=None) -> dict[Pass, Target]:
    return {kind: Target(ratio=ratio, share=share) for kind in ("forward", "train")}


def _pattern(ratio: float | None = 2.0, train_ratio: float | None = 1.5) -> dict[Pass, Target]:
    return {
        "forward": Target(ratio=ratio, share=0.45),
        "train": Target(ratio=train_ratio, share=0.35),
    }


def _short(most: int) -> dict[Pass, int]:
    return {"forward": most, "train": most}


SDPA = Peer(name="torch SDPA", package=None, build=layers.sdpa)
WHOLE_BLOCKS = "nearest: whole blocks, no exact window"
FAVOR = "performer-pytorch"
NO_OUT = "nearest: no output projection"

PAIRS: tuple[Pair, ...] = (
    *(
        Pair(
            mixer="softmax",
            scope="core",
            causal=causal,
            targets=_both(ratio=0.97),
            peers=(SDPA,),
        )
        for causal in (False, True)
    ),
    *(
        Pair(
            mixer="softmax",
            scope="layer",
            causal=causal,
            targets=_both(ratio=0.97),
            peers=(
                Peer(name="x-transformers", package="x-transformers", build=layers.x_transformers),
            ),
            most=_short(4096),  # at 16,384 the core is enough
        )
        for causal in (False, True)
    ),
    *(
        Pair(
            mixer="local",
            scope="core",
            causal=causal,
            targets=_pattern(),
            options=lambda case: {"window_size": 128},
            peers=(
                Peer(
                    name="local-attention exact",
                    package="local-attention",
                    build=layers.local_exact,
                ),
                Peer(
                    name="local-attention",
                    package="local-attention",
                    build=layers.local_blocks,
                    function=WHOLE_BLOCKS,
                ),
            ),
        )
        for causal in (False, True)
    ),
    *(
        Pair(mixer="strided", scope="core", causal=causal, targets=_pattern(None, None))
        for causal in (False, True)
    ),
    *(
        Pair(mixer=name, scope="core", causal=False, targets=_pattern(None, None))
        for name in ("global", "head_mix")
    ),
    Pair(
        mixer="longformer",
        scope="layer",
        causal=False,
        targets=_pattern(4.0, 4.0),
        options=lambda case: {"window_size": 128},
        peers=(
            Peer(
                name="transformers Longformer",
                package="transformers",
                build=layers.hf_longformer,
                function=NO_OUT,
            ),
        ),
    ),
    Pair(
        mixer="bigbird",
        scope="layer",
        causal=False,
        targets=_pattern({1024: 2.0, 4096: 4.0, 16384: 50.0}, {1024: 1.5, 4096: 4.0, 16384: 50.0}),
        options=lambda case: {"block_size": 64, "num_random": 3},
        peers=(
            Peer(
                name="transformers BigBird",
                package="transformers",
                build=layers.hf_bigbird,
                function=NO_OUT,
            ),
        ),
    ),
    *(
        Pair(
            mixer="reformer",
            scope="core",
            causal=causal,
            targets=_both(ratio=4.0, share=0.20),
            options=lambda case: {"num_hashes": 4, "chunk_size": 64},
            peers=(
                Peer(
                    name="reformer-pytorch",
                    package="reformer-pytorch",
                    build=layers.reformer,
                    function="nearest: looks across buckets, chunks leak in causal use",
                ),
            ),
        )
        for causal in (False, True)
    ),
    Pair(
        mixer="reformer",
        scope="layer",
        causal=True,
        targets=_both(ratio=4.0),
        options=lambda case: {"num_hashes": 4, "chunk_size": 64},
        peers=(
            Peer(
                name="transformers Reformer",
                package="transformers",
                build=layers.hf_reformer,
                function="nearest: no output projection, chunks leak in causal use",
            ),
        ),
    ),
    *(
        Pair(
            mixer="routing",
            scope="core",
            causal=causal,
            targets=_both(ratio=3.0, share=0.20),
            options=lambda case: {
                "num_clusters": max(1, case.length // 128),
                "window_size": min(128, case.length),
            },
            peers=(
                Peer(
                    name="routing-transformer",
                    package="routing-transformer",
                    build=layers.routing,
                    function="nearest: clusters leak in causal use",
                ),
            ),
        )
        for causal in (False, True)
    ),
    *(
        Pair(
            mixer="sinkhorn",
            scope="layer",
            causal=causal,
            targets=_both(ratio=2.0, share=0.35),
            options=lambda case: {"block_size": 128, "sort_net": "attention"},
            peers=(
                Peer(
                    name="sinkhorn-transformer",
                    package="sinkhorn-transformer",
                    build=layers.sinkhorn,
                    function="nearest: takes keys for sorted values",
                ),
            ),
        )
        for causal in (False, True)
    ),
    Pair(
        mixer="linear",
        scope="core",
        causal=False,
        targets=_both(ratio=1.7, share=0.30),
        peers=(
            Peer(
                name="fast-transformers",
                package="pytorch-fast-transformers",
                build=layers.fast_linear,
            ),
        ),
    ),
    Pair(
        mixer="linear",
        scope="core",
        causal=True,
        targets=_both(ratio=1.7, share=0.30),
        peers=(
            Peer(
                name="fast-transformers",
                package="pytorch-fast-transformers",
                build=layers.fast_linear,
            ),
            Peer(name="fla naive chunks", package="fla-core", build=layers.fla_chunks),
        ),
    ),
    *(
        Pair(
            mixer="efficient",
            scope="layer",
            causal=causal,
            targets=_both(ratio=20.0 if causal else 1.7, share=0.30),
            peers=(
                Peer(
                    name="linear-attention-transformer",
                    package="linear-attention-transformer",
                    build=layers.linear_attention_transformer,
                    function="nearest: no running maximum" if causal else "same",
                    most={"forward": 4096, "train": 4096} if causal else {},
                ),
            ),
        )
        for causal in (False, True)
    ),
    *(
        Pair(
            mixer="rfa",
            scope="core",
            causal=causal,
            targets=_both(ratio=20.0 if causal else 1.7, share=0.30),
            peers=(
                Peer(
                    name="performer-pytorch",
                    package=FAVOR,
                    build=layers.performer(128),
                    function="nearest: positive features, as many",
                    most={"forward": 4096, "train": 1024} if causal else {},
                ),
            ),
        )
        for causal in (False, True)
    ),
    *(
        Pair(
            mixer="performer",
            scope="core",
            causal=causal,
            targets=_both(ratio=20.0 if causal else 1.5, share=0.30),
            options=lambda case: {"num_features": 256},
            peers=(
                Peer(
                    name="performer-pytorch",
                    package=FAVOR,
                    build=layers.performer(256),
                    function="nearest: its stabiliser looks ahead" if causal else "same",
                    most={"forward": 4096, "train": 4096} if causal else {},
                ),
            ),
        )
        for causal in (False, True)
    ),
    Pair(
        mixer="linformer",
        scope="layer",
        causal=False,
        targets=_both(ratio=1.0, share=0.45),
        options=lambda case: {"num_slots": min(256, case.length), "sharing": "headwise"},
        peers=(Peer(name="linformer", package="linformer", build=layers.linformer),),
    ),
    *(
        Pair(
            mixer="compressed",
            scope="layer",
            causal=causal,
            targets=_both(ratio=2.0, share=0.45),
            options=lambda case: {"factor": 3, "first_slot": "null"},
            peers=(
                Peer(
                    name="memory-compressed-attention",
                    package="memory-compressed-attention",
                    build=layers.memory_compressed,
                    function="nearest: pads in front, other scale",
                    most=_short(4096),
                ),
            ),
            most={"train": 4096},
        )
        for causal in (False, True)
    ),
    *(
        Pair(mixer=f"synthesizer_{form}", scope="layer", causal=False, targets=_both(share=0.50))
        for form in ("factorized_random", "factorized_dense")
    ),
    *(
        Pair(
            mixer=f"synthesizer_{form}",
            scope="layer",
            causal=False,
            targets=_both(share=0.50),
            most=_short(4096),
        )
        for form in ("dense", "random")
    ),
    *(
        Pair(
            mixer="gau",
            scope="layer",
            causal=causal,
            targets=_both(ratio=2.0, share=0.50),
            peers=(
                Peer(
                    name="FLASH-pytorch GAU",
                    package="FLASH-pytorch",
                    build=layers.gau,
                    function="nearest: its own norm, relative bias for rotary",
                    most=_short(4096),
                ),
            ),
            most={"train": 4096},
        )
        for causal in (False, True)
    ),
    *(
        Pair(
            mixer="flash",
            scope="layer",
            causal=causal,
            targets=_both(ratio=1.3, share=0.45),
            options=lambda case: {"chunk_size": 256},
            peers=(
                Peer(
                    name="FLASH-pytorch",
                    package="FLASH-pytorch",
                    build=layers.flash,
                    function="nearest: its own norm, relative bias for rotary",
                ),
            ),
        )
        for causal in (False, True)
    ),
    *(
        Pair(mixer="mixed_chunk", scope="layer", causal=causal, targets=_both(share=0.45))
        for causal in (False, True)
    ),
    Pair(
        mixer="gmlp",
        scope="layer",
        causal=False,
        targets=_both(ratio=1.0),
        options=lambda case: {"hidden_dim": 2048},
        peers=(Peer(name="g-mlp-pytorch", package="g-mlp-pytorch", build=layers.gmlp),),
        most=_short(4096),
    ),
    Pair(
        mixer="mlp_mixer",
        scope="layer",
        causal=False,
        targets=_both(ratio=1.0),
        options=lambda case: {"token_hidden_dim": 2048},
        peers=(Peer(name="mlp-mixer-pytorch", package="mlp-mixer-pytorch", build=layers.mixer),),
    ),
    Pair(
        mixer="fnet",
        scope="layer",
        causal=False,
        targets=_both(ratio=1.0),
        peers=(Peer(name="transformers FNet", package="transformers", build=layers.hf_fnet),),
    ),
)


def chosen(only: tuple[str, ...]) -> list[Pair]:
    """The pairs of these mechanisms; all of them by default. Raises UnknownNameError."""
    known = list(dict.fromkeys(pair.mixer for pair in PAIRS))
    for name in only:
        if name not in known:
            raise UnknownNameError("mechanism", name, known)
    return [pair for pair in PAIRS if not only or pair.mixer in only]


def feasible(
    only: tuple[str, ...], passes: tuple[Pass, ...], length: int
) -> Iterator[tuple[Pair, Pass]]:
    """The chosen pairs in these passes, without those that need too much memory or time at this length."""
    for pair in chosen(only):
        yield from ((pair, kind) for kind in passes if length <= pair.most.get(kind, length))
