"""What does 1 / sqrt(d) do at width: to the weights at the start, to the gradient, and to what is learned?

regard arena questions.width:QUESTION --rows docs/findings/rows/width.jsonl

About 17 core-minutes: 72 runs of 4 s (over d), 8 s (over sqrt(d)), 12 s (as they are, lines) and 25 s (additive), and a sixth more where rates are widened.
"""

from typing import Any

import torch

from questions._models import ReaderConfig
from regard.explore import head_statistics, layers
from regard.lab import Claim, Column, Entry, Question, Shell, above, below
from regard.lab.experiment.question import Fitted
from regard.lab.tasks.fingerprint import Lookup
from regard.lab.train.short import Short

VASWANI = "Vaswani et al. 2017, arXiv 1706.03762, section 3.2.1"
SHELLS = tuple(
    Shell(dim=128, num_heads=1, num_layers=1, position=one) for one in ("learned", "sinusoidal")
)


def at_start(fitted: Fitted) -> dict[str, float]:
    """Entropy of the first weights, nats, and the gradient in the queries' matrix for a unit of the scores' factor, of a new model."""
    model: Any = fitted.model.config.build()  # type: ignore[union-attr, operator]
    mixers = [one for one in model.modules() if getattr(one, "name", "") == "softmax"]
    if not mixers:
        return {}
    tokens, labels = (part[:64] for part in fitted.splits.test.rows())
    torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten()).backward()
    entropy = head_statistics(layers(model, tokens)[0].found.values).entropy
    return {
        "entropy": float(entropy.mean()),
        "gradient of scores": float(mixers[0].heads.query.weight.grad.norm())
        / (mixers[0].scale or model.config.dim**-0.5),
    }


# fmt: off
QUESTION = Question(
    name="width",
    about="What is lost without 1 / sqrt(d) in one head of 128 channels?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax", title="over sqrt(d)"),
        Entry(mixer="softmax", title="as they are", options={"scale": 1.0}),
        Entry(mixer="softmax", title="over d", options={"scale": 1 / 128}),
        Entry(mixer="scored", title="additive", options={"score": "additive"}),
    ),
    vary=(
        Column(name="lookup", task=Lookup(), train=Short(steps=300), shell=SHELLS[0], model=ReaderConfig),
    ),
    shells=SHELLS,
    rates=(1e-3, 3e-3, 9e-3),
    baseline="over sqrt(d)",
    measures=at_start,
    claims=(
        Claim(
            text="Dot products grow with the width, and softmax is pushed to where its gradient is small: weights of lower entropy, a smaller gradient.",
            source=VASWANI, smallest=0.05,
            expected=(below("as they are", "over sqrt(d)", by=0.5, measure="entropy"), below("as they are", "over sqrt(d)", by=0.05, measure="gradient of scores")),
        ),
        Claim(
            text="At width the dot product without 1 / sqrt(d) is worse than with it.", source=VASWANI, smallest=0.02, expected=(above("over sqrt(d)", "as they are"),),
        ),
        Claim(
            text="There the additive score is better than the dot product without it.", source=f"{VASWANI}, of Britz et al. 2017", smallest=0.02,
            expected=(above("additive", "as they are"),),
        ),
    ),
    limits=(
        "A factor of the scores is a factor of the first weights of queries and of their rate: where rates are searched, what is left is the start alone.",
        "The gradient is divided by the factor, which it holds as a factor of its own: what is left is what softmax lets through.",
        "Measures at the start are of a new model of the same sizes, one for each seed of training; their intervals are of seeds alone.",
        "One head of 128 in one layer, a task that is solved in some hundred steps.",
    ),
)
