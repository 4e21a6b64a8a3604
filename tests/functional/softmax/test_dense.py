import torch

from regard.functional.softmax import softmax_attention


def test_heads_may_be_a_symbol_to_a_compiler():
    """torch.compile(dynamic=True) sees the number of heads as one that may change."""
    torch.compiler.reset()
    generator = torch.Generator().manual_seed(0)
    compiled = torch.compile(
        lambda q, k, v: softmax_attention(q, k, v), fullgraph=True, dynamic=True, backend="eager"
    )
    for heads, groups in ((2, 2), (6, 6), (6, 3)):
        q = torch.randn(2, heads, 5, 4, generator=generator)
        k, v = torch.randn(2, 2, groups, 5, 4, generator=generator)
        torch.testing.assert_close(compiled(q, k, v), softmax_attention(q, k, v))
