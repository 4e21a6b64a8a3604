"""What is compared: each mechanism of ours, and the public packages that do the same, or the nearest to it.

A pair has a scope. "core": q, k, v [B H T K] are ready, and neither side projects. "layer": each side gets x [B T D] and makes its own
projections.
"""

from collections.abc import Callable, Mapping
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
class Pair:
    mixer: str
    scope: Scope
    causal: bool
    peers: tuple[Peer, ...] = ()
    options: Callable[[Case], dict[str, Any]] = lambda case: {}
    most: Mapping[Pass, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.mixer} {self.scope}{' causal' if self.causal else ''}"


def _short(most: int) -> dict[Pass, int]:
    return {"forward": most, "train": most}


SDPA = Peer(name="torch SDPA", package=None, build=layers.sdpa)
WHOLE_BLOCKS = "nearest: whole blocks, no exact window"
FAVOR = "performer-pytorch"
NO_OUT = "nearest: no output projection"

PAIRS: tuple[Pair, ...] = (
    *(
        Pair(mixer="softmax", scope="core", causal=causal, peers=(SDPA,))
        for causal in (False, True)
    ),
    *(
        Pair(
            mixer="softmax",
            scope="layer",
            causal=causal,
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
    *(Pair(mixer="strided", scope="core", causal=causal) for causal in (False, True)),
    *(Pair(mixer=name, scope="core", causal=False) for name in ("global", "head_mix")),
    Pair(
        mixer="longformer",
        scope="layer",
        causal=False,
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
        options=lambda case: {"num_slots": min(256, case.length), "sharing": "headwise"},
        peers=(Peer(name="linformer", package="linformer", build=layers.linformer),),
    ),
    *(
        Pair(
            mixer="compressed",
            scope="layer",
            causal=causal,
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
        Pair(mixer=f"synthesizer_{form}", scope="layer", causal=False)
        for form in ("factorized_random", "factorized_dense")
    ),
    *(
        Pair(mixer=f"synthesizer_{form}", scope="layer", causal=False, most=_short(4096))
        for form in ("dense", "random")
    ),
    *(
        Pair(
            mixer="gau",
            scope="layer",
            causal=causal,
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
    *(Pair(mixer="mixed_chunk", scope="layer", causal=causal) for causal in (False, True)),
    Pair(
        mixer="gmlp",
        scope="layer",
        causal=False,
        options=lambda case: {"hidden_dim": 2048},
        peers=(Peer(name="g-mlp-pytorch", package="g-mlp-pytorch", build=layers.gmlp),),
        most=_short(4096),
    ),
    Pair(
        mixer="mlp_mixer",
        scope="layer",
        causal=False,
        options=lambda case: {"token_hidden_dim": 2048},
        peers=(Peer(name="mlp-mixer-pytorch", package="mlp-mixer-pytorch", build=layers.mixer),),
    ),
    Pair(
        mixer="fnet",
        scope="layer",
        causal=False,
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
