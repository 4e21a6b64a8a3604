"""Models small enough to look through."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.models import ClassifierConfig, LanguageModelConfig, ModelConfig, TransformerConfig

VOCAB = 31
STACK = {"vocab_size": VOCAB, "dim": 24, "num_heads": 3, "num_layers": 2, "max_len": 40}


def _built(kind: type[ModelConfig], **own: Any) -> Callable[..., Any]:
    def build(**options: Any) -> Any:
        torch.manual_seed(0)
        return kind(**{**STACK, **own, **options}).build().double().eval()

    return build


language_model = _built(LanguageModelConfig)
classifier = _built(ClassifierConfig, num_classes=5)
transformer = _built(TransformerConfig)


def shaken(config: ModelConfig, by: float = 0.2) -> Any:
    """The model in double precision, its parameters away from special values such as zero and one."""
    torch.manual_seed(0)
    model = config.build().double().eval()
    for parameter in model.parameters():
        parameter.data.add_(by * torch.randn_like(parameter))
    return model


def assert_same(found: Tensor, expected: Tensor, model: torch.nn.Module, atol: float = 1e-10):
    """Outputs, and gradients of the parameters, which may be ten times as far apart."""
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)
    leaves = list(model.parameters())
    losses = (y.square().sum() for y in (found, expected))
    gradients = (torch.autograd.grad(loss, leaves, allow_unused=True) for loss in losses)
    torch.testing.assert_close(*gradients, rtol=0, atol=10 * atol)


def prompts(T: int = 7, B: int = 3) -> Tensor:
    return torch.randint(0, VOCAB, (B, T), generator=torch.Generator().manual_seed(1))


def ragged(T: int = 7) -> Tensor:
    """Rows padded left, right and inside."""
    valid = torch.ones(3, T, dtype=torch.bool)
    valid[0, :4] = False
    valid[1, -2:] = False
    valid[2, 2] = False
    return valid


def targets(T: int = 6) -> Tensor:
    return torch.randint(0, VOCAB, (3, T), generator=torch.Generator().manual_seed(5))


def ragged_targets() -> Tensor:
    valid = torch.ones(3, 6, dtype=torch.bool)
    valid[0, :3] = False
    valid[1, -1:] = False
    valid[2, 4] = False
    return valid
