import torch

from regard import Mask, build
from regard.functional.softmax import softmax_attention
from regard.testing.counting import count


def test_heads_may_be_a_symbol_to_a_compiler():
    """torch.compile(dynamic=True) sees the number of heads as one that may change."""
    torch.compiler.reset()
    generator = torch.Generator().manual_seed(0)
    how = {"fullgraph": True, "dynamic": True, "backend": "eager"}
    compiled = torch.compile(lambda q, k, v: softmax_attention(q, k, v), **how)
    for heads, groups in ((2, 2), (6, 6), (6, 3)):
        q = torch.randn(2, heads, 5, 4, generator=generator)
        k, v = torch.randn(2, 2, groups, 5, 4, generator=generator)
        torch.testing.assert_close(compiled(q, k, v), softmax_attention(q, k, v))


def test_training_with_additive_scores_holds_no_hidden_layer_of_all_pairs():
    T = 2048
    with torch.device("meta"):
        options = {"score": "additive", "score_options": {"hidden_dim": 32}}
        mixer = build("scored", dim=24, num_heads=3, **options)
        x = torch.empty(1, T, 24, requires_grad=True)
    used = count(lambda: mixer(x, mask=Mask(causal=True)).sum().backward()).peak_bytes
    assert used < 3 * T * T * 4  # one float for every pair and head; the hidden layer has 32
