"""Scores taken some queries at a time: the same result, at a memory that never holds all pairs."""

import pytest
import torch

import regard
from regard import Form, Mask
from regard.testing.counting import count


@pytest.mark.parametrize(
    "options", [{"score": "additive"}, {"score": "dot", "normaliser": "sigmoid"}]
)
@pytest.mark.parametrize("causal", [False, True])
def test_tiles_of_queries_do_not_show(options, causal):
    mixer = regard.build("scored", dim=24, num_heads=3, **options).double()
    x = torch.randn(2, 11, 24).double().requires_grad_()
    mask = Mask(causal=causal, valid=torch.arange(11) < torch.tensor([[11], [7]]))
    leaves = [x, *mixer.parameters()]
    whole = mixer(x, mask=mask)
    expected = torch.autograd.grad((whole**2).sum(), leaves)
    mixer.impl = Form(tile=4)
    parts = mixer(x, mask=mask)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    for ours, theirs in zip(torch.autograd.grad((parts**2).sum(), leaves), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    torch.compiler.reset()
    compiled = torch.compile(mixer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, mask=mask), whole, rtol=0, atol=1e-12)


def test_training_with_additive_scores_holds_no_hidden_layer_of_all_pairs():
    T = 2048
    with torch.device("meta"):
        options = {"score": "additive", "score_options": {"hidden_dim": 32}}
        mixer = regard.build("scored", dim=24, num_heads=3, **options)
        x = torch.empty(1, T, 24, requires_grad=True)
    used = count(lambda: mixer(x, mask=Mask(causal=True)).sum().backward()).peak_bytes
    assert used < 3 * T * T * 4  # one float for every pair and head; the hidden layer has 32
