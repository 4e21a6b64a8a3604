"""What a mechanism says of itself that lacks nothing: each replaces what it cannot do, with the reason, and what it costs."""

from regard.core import Capabilities

ALL = Capabilities(
    causal=True,
    pairwise=True,
    global_tokens=True,
    cross=True,
    streaming="exact",
    attention_map=True,
    positions=frozenset({"absolute"}),
    time="T^2 H K",
    memory="T D",
    state="T D",
)
