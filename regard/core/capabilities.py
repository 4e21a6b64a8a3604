"""Capabilities of a mechanism as data; each missing one carries its reason."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from regard.core.errors import OptionError
from regard.core.options import CheckedOptions, Declared

FACTOR = r"(log )?([A-Z](\^\d+(\.\d+)?)?|\d+)"
COST = re.compile(rf"{FACTOR}(( /| \+)? {FACTOR})*")
"""A sum of products and quotients."""


@dataclass(frozen=True)
class No(metaclass=CheckedOptions):
    """A missing capability, with the reason that users read: `causal=No("the length projection mixes future keys")`."""

    reason: str

    def __bool__(self) -> bool:
        return False


Answer = Literal[True] | No
Streaming = Literal["exact", "segment"] | No
Exchange = Literal["halo", "sums", "means", "slots", "keys"] | No


class Capabilities(Declared):
    """Every field is proved by a law (yes) or by the text of an error (no); `positions` and `exchange` are believed.

    `time`, `memory` and `state` are sums of products in the library's letters, T the length: "T W K", "T^2 K",
    "T log T D", "H K V". Memory is that of one forward pass beyond its inputs; state is the streaming state's.
    finite_to: in float16, the scale of inputs up to which outputs and gradients are finite. Above it, and in all other types, they are so
    wherever softmax's are and their true values fit into the type.
    A global token may see, and be seen by, every token; where all tokens already do, or all but those that `Mixer.delay` holds back, it changes nothing.
    exchange: what ranks that hold parts of a row send each other in any order of time (see `regard.parallel`): "halo", the tokens up to `reach` before
    and behind a part; of context states, "sums", "means" with the logarithms of their weights, "slots" that tokens add to by their places, or
    "keys", all tokens; a No: the tokens themselves. States of causal streams, and heads that are alike, are exchanged without it.
    """

    causal: Answer
    bidirectional: Answer = True
    padding: Answer = True
    pairwise: Answer
    global_tokens: Answer
    cross: Answer
    streaming: Streaming
    attention_map: Answer
    any_length: Answer = True
    deterministic: Answer = True
    includes_ffn: bool = False
    positions: frozenset[str] = frozenset()
    approximates: str | None = None
    time: str
    memory: str
    state: str | None = None
    exchange: Exchange = No("it sends tokens, where neither a causal state nor whole heads serve")
    finite_to: float = 100.0

    def but(self, **changes: Any) -> "Capabilities":
        """The same, with these fields."""
        return replace(self, **changes)

    def refusals(self) -> dict[str, str]:
        """Name of each capability that is absent -> its reason."""
        answers = vars(self).items()
        return {name: answer.reason for name, answer in answers if isinstance(answer, No)}


def growth(cost: str, low: int, high: int) -> float:
    """Returns the log-log slope of a declared cost between two lengths `low` and `high`, in tokens, from its fastest-growing term.

    >>> growth("T W K + T^2 K", 4096, 65536)
    2.0

    Raises OptionError unless 1 < low < high, and for a cost that is no sum of such products.
    """
    cost = " ".join(cost.split())
    if not COST.fullmatch(cost):
        raise OptionError(f"growth: cost ({cost}) must be sums of products as 'T W K + T^2 H / C'")
    if not 1 < low < high:
        raise OptionError(f"growth: lengths ({low}, {high}) must rise, and be above 1")

    def term_slope(term: str) -> float:
        found = re.findall(r"(/ )?(?<!log )\bT\b(?:\^([\d.]+))?", term)
        slope = sum(float(power or 1) * (-1 if below else 1) for below, power in found)
        if "log T" in term:
            slope += math.log(math.log(high) / math.log(low)) / math.log(high / low)
        return slope

    return max(term_slope(term) for term in cost.split("+"))
