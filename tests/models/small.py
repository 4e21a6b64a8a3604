"""Models small enough to look through."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.models import ClassifierConfig, LanguageModelConfig, ModelConfig, TransformerConfig
from regard.testing.laws.streaming import feed

VOCAB = 31
STACK = {"vocab_size": VOCAB, "dim": 24, "num_heads": 3, "num_layers": 2, "max_len": 40}
DOCUMENTS = torch.tensor([[3] * 5 + [1] * 3 + [4] * 4, [0] * 12, [9] + [8] * 7 + [7, 7, 2, 2]])


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


def prompts(T: int = 7, B: int = 3, *, seed: int = 1) -> Tensor:
    return torch.randint(0, VOCAB, (B, T), generator=torch.Generator().manual_seed(seed))


def ragged(T: int = 7, left: int = 4, right: int = 2, inside: int = 2) -> Tensor:
    """Rows padded left, right and inside."""
    valid = torch.ones(3, T, dtype=torch.bool)
    valid[0, :left] = valid[1, -right:] = valid[2, inside] = False
    return valid


def targets(T: int = 6) -> Tensor:
    return prompts(T, seed=5)


def ragged_targets() -> Tensor:
    return ragged(6, 3, 1, 4)


def streamed(model: Any, tokens: Tensor, valid: Tensor) -> Tensor:
    """Logits of DOCUMENTS in a stream, whose last token comes without a number: it belongs to the last document."""
    given = {"valid": valid, "documents": DOCUMENTS}
    first, state = feed(model, tokens[:, :11], model.initial_state(3), (3, 1, 7), **given)
    return torch.cat([first, model.extend(tokens[:, 11:], state, valid=valid[:, 11:])[0]], 1)
