"""recall: what can a mechanism look up again, and with how many bytes of state? Multi-query associative recall (MQAR).

The state is that of the trained model while it decodes one row, counted from its tensors.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from regard.lab.findings.finding import (
    Claim,
    Entry,
    Expected,
    Finding,
    Fitted,
    above,
    reaches,
    stays_below,
)
from regard.lab.findings.small import brief, test_split
from regard.lab.recipes import Run
from regard.lab.tasks import Recall
from regard.lab.train.batches import in_order
from regard.models import LanguageModel, LanguageModelConfig
from regard.models.block import Block

WIDTH = 3  # tokens of the short convolution


class ShortConvolution(nn.Module):
    """Each channel's weighted sum of the last WIDTH tokens, in front of a mixer as Zoology has it (arXiv 2312.04927)."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim, 1, WIDTH))
        nn.init.uniform_(self.weight, -(WIDTH**-0.5), WIDTH**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        past = F.pad(x.transpose(1, 2), (WIDTH - 1, 0))
        return F.conv1d(past, self.weight, groups=len(self.weight)).transpose(1, 2)


@dataclass(frozen=True, kw_only=True)
class ConvolvedConfig(LanguageModelConfig):
    """A language model with a short convolution before each mixer. It is trained and tested here, and does not stream."""

    name: ClassVar[str] = "convolved_language_model"

    def build(self) -> LanguageModel:
        model = super().build()
        for block in model.modules():
            if isinstance(block, Block):
                convolved = nn.Sequential(block.mixer_norm, ShortConvolution(self.dim))
                block.add_module("mixer_norm", convolved)
        return model


TASK = Recall(length=32, num_pairs=4, vocab_size=32, train_size=12_800)


STEPS = 1000


def _run(mixer: str, convolved: bool = True, num_heads: int = 1, **options: Any) -> Run:
    config = ConvolvedConfig if convolved else LanguageModelConfig
    model = config(
        vocab_size=TASK.vocab_size,
        max_len=TASK.max_len,
        dim=32,
        num_heads=num_heads,
        num_layers=2,
        hidden_dim=64,
        position="none",
        mixer=mixer,
        mixer_options=options,
    )
    return Run(task=TASK, model=model, train=brief(steps=STEPS, batch_size=64, lr=1e-2))


def measures(fitted: Fitted) -> dict[str, float]:
    """Bytes of state after one row, and the accuracy on rows with twice the pairs, which nothing was trained on."""
    task = replace(TASK, num_pairs=2 * TASK.num_pairs, train_size=1, valid_size=1, test_size=500)
    batches = in_order(test_split(task), 100, task.collate)
    return {
        "state bytes": float(state_bytes(fitted)),
        f"accuracy with {task.num_pairs} pairs": fitted.run.task.score(fitted.model, batches),
    }


def state_bytes(fitted: Fitted) -> int:
    """Bytes of state of one row, in all layers, once it was read; the last tokens that short convolutions need are part of it."""
    model = fitted.model
    assert isinstance(model, LanguageModel)
    tokens = torch.ones(
        1, TASK.length, dtype=torch.long, device=model.encoder.embedding.table.weight.device
    )
    with torch.no_grad():
        _, state = model.eval().extend(tokens, model.initial_state(1, max_len=TASK.length))
    convolutions = sum(isinstance(part, ShortConvolution) for part in model.modules())
    return _bytes(tree_leaves(state)) + convolutions * (WIDTH - 1) * model.config.dim * 4


def _bytes(leaves: Iterable[Any]) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, Tensor))


def _entry(label: str, mixer: str, line: str = "", **options: Any) -> Entry:
    return Entry(label, lambda: _run(mixer, **options), line=line or label)


def _expected(pairs: Mapping[str, str]) -> tuple[Expected, ...]:
    return tuple(above(of, beside) for of, beside in pairs.items())


RECALL = Finding(
    name="recall",
    about="What can a causal mechanism look up again, and with how many bytes of state?",
    entries=(
        _entry("softmax", "softmax"),
        _entry("linear, 1 head", "linear", "linear"),
        _entry("linear, 4 heads", "linear", "linear", num_heads=4),
        _entry("linear, 16 heads", "linear", "linear", num_heads=16),
        _entry("window of 4", "local", "window", window_size=3),
        _entry("window of 16", "local", "window", window_size=15),
        _entry("softmax, no convolution", "softmax", convolved=False),
        _entry("linear, no convolution", "linear", convolved=False),
        _entry("Performer, 64 features", "performer", "performer", num_features=64),
        _entry("rfa", "rfa"),
        _entry("gau", "gau", key_dim=32),
        _entry("flash, chunks of 8", "flash", key_dim=32, chunk_size=8),
        _entry("compressed", "compressed"),
        _entry("synthesizer_random", "synthesizer_random"),
        _entry("gmlp", "gmlp"),
    ),
    claims=(
        Claim(
            "Attention recalls everything.",
            "Arora et al. 2023, arXiv 2312.04927",
            (reaches("softmax", 0.95),),
        ),
        Claim(
            "A linear mechanism recalls the more, the larger its state.",
            "Arora et al. 2024, arXiv 2402.18668",
            _expected({"linear, 1 head": "linear, 4 heads", "linear, 4 heads": "linear, 16 heads"}),
        ),
        Claim(
            "A window recalls what lies inside it alone: a wider one more.",
            "Arora et al. 2024, arXiv 2402.18668",
            (above("window of 16", "window of 4"),),
        ),
        Claim(
            "With a state as small as this, no linear mechanism reaches attention.",
            "Arora et al. 2023, arXiv 2312.04927",
            tuple(above("softmax", f"linear, {heads}") for heads in ("1 head", "4 heads")),
        ),
        Claim(
            "Weights that do not depend on content recall nothing.",
            "Arora et al. 2023, arXiv 2312.04927",
            (stays_below("synthesizer_random", 0.5),),
        ),
        Claim(
            "The short convolution does much of the work for a linear mechanism: 0.2 and more.",
            "our reading of arXiv 2312.04927, whose models all have one",
            (above("linear, 1 head", "linear, no convolution", by=0.2),),
        ),
    ),
    measures=measures,
    x="state bytes",
    rates=(3e-3, 1e-2),
    method=(
        "Four keys with their values, then the keys again: 32 tokens of a vocabulary of 32. Two blocks of width 32 "
        "without positions; a convolution of three tokens before each mixer unless said. The state is counted from the "
        "tensors that decoding one row leaves, all layers together. Each model has the better of two learning rates on validation, searched from the first seed."
    ),
    limits=(
        "The published figure has rows of up to 1,024 tokens, 256 pairs, a vocabulary of 8,192, widths to 256 and four learning "
        f"rates for each model. Here are two rates, one width, and four pairs: what a mechanism cannot learn within {STEPS:,} steps is "
        "not what it can never do.",
        "The six tasks of MAD (arXiv 2403.17844) are the suite `mad`.",
    ),
)
