"""moba, indexed and native_sparse: published indexers, ties, and what the index learns."""

import pytest
import torch

import regard
from regard.functional.selected import largest
from tests.mixers.test_softmax_kin import CAUSAL, built

X = torch.randn(2, 12, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_of_equal_scores_later_keys_are_taken_whatever_the_length():
    scores = torch.tensor([1.0, 0.0, 0.0, 2.0, 0.0, 0.0])
    for length in range(1, 7):
        allowed = torch.arange(6) < length
        found = largest(scores[None, None, None], allowed, None, 3)[0, 0, 0].sort().values.tolist()
        best = sorted(range(length), key=lambda j: (scores[j].item(), j))[-3:]
        assert found == [-1] * (3 - len(best)) + sorted(best)
    forced = torch.arange(6) == 1
    assert 1 in largest(scores[None, None, None], torch.arange(6) < 6, forced, 2)
    assert 1 not in largest(scores[None, None, None], torch.arange(6) > 1, forced, 2)


def indices(chosen):
    """Sets of what each query chose, of the first row and head."""
    return [{j for j in of if j >= 0} for of in chosen[0, 0].tolist()]


def test_the_choice_is_deepseeks():
    deepseek = pytest.importorskip("transformers.models.deepseek_v32.modeling_deepseek_v32")
    sizes = dict(hidden_size=24, index_n_heads=4, index_head_dim=6, q_lora_rank=24, index_topk=3)
    config = deepseek.DeepseekV32Config(**sizes, qk_rope_head_dim=2)
    torch.manual_seed(0)
    theirs = deepseek.DeepseekV32Indexer(config, 0).double()
    ours = built("indexed", top_k=3, index_dim=6)
    own = {"index_query": "wq_b", "index_key": "wk", "index_norm": "k_norm"}
    for name, other in (own | {"index_weight": "weights_proj"}).items():
        getattr(ours, name).load_state_dict(getattr(theirs, other).state_dict())
    still = torch.ones(2, 12, 2, dtype=torch.float64), torch.zeros(2, 12, 2, dtype=torch.float64)
    seen = torch.ones(12, 12, dtype=torch.bool).tril().expand(2, -1, -1)
    expected = theirs(X, X, still, seen, None)
    chosen = ours.plan(X, mask=CAUSAL)["chosen"]
    for i, (a, b) in enumerate(zip(indices(chosen), indices(expected[:, None]), strict=True)):
        assert a == {j for j in b if j <= i}  # theirs fills up with keys that its mask drops


def test_the_choice_by_blocks_is_minimaxs():
    minimax = pytest.importorskip("transformers.models.minimax_m3_vl.modeling_minimax_m3_vl")
    sizes = dict(hidden_size=24, index_n_heads=3, index_head_dim=8, rms_norm_eps=1e-5)
    blocks = dict(index_block_size=2, index_topk_blocks=3, index_local_blocks=1)
    config = minimax.MiniMaxM3VLTextConfig(**sizes, **blocks)
    torch.manual_seed(0)
    theirs = minimax.MiniMaxM3VLIndexer(config, 0).double()
    ours = built("indexed", top_k=3, block_size=2)
    ours.index_query.load_state_dict(theirs.q_proj.state_dict())
    ours.index_key.load_state_dict(theirs.k_proj.state_dict())
    still = torch.ones(2, 12, 8, dtype=torch.float64), torch.zeros(2, 12, 8, dtype=torch.float64)
    expected = theirs(X, still, None, torch.arange(12).expand(2, -1))
    chosen = ours.plan(X, mask=CAUSAL)["chosen"]
    assert torch.equal(chosen.sort(-1).values, expected.sort(-1).values)


@pytest.mark.parametrize(
    "options, share", [({"top_k": 4}, 0), ({"top_k": 2, "block_size": 3}, 0), ({"top_k": 4}, 0.7)]
)
@pytest.mark.parametrize("causal", [True, False])
def test_the_auxiliary_loss_is_its_formula_and_moves_the_index_alone(options, causal, share):
    """share: of the pairs, drawn for each head, that a mask allows beside a token itself; 0: no mask."""
    mixer, valid = built("indexed", **options), torch.arange(12) >= torch.tensor([[0], [5]])
    pairs = (torch.rand(2, 3, 12, 12) < share) | torch.eye(12, dtype=torch.bool)
    mask = regard.Mask(causal=causal, valid=valid, pairwise=pairs if share else None)
    x = X.clone().requires_grad_()
    loss = mixer.auxiliary_loss(x, mask=mask)
    index = {n: z for n, z in mixer.named_parameters() if not n.startswith("heads.")}
    loss.backward()
    moved = {n: z.grad for n, z in mixer.named_parameters() if z.grad is not None and z.grad.any()}
    assert moved.keys() == index.keys() and x.grad is None
    C, total, H = mixer.block_size or 1, 0.0, 3
    for row in range(2):
        alone, there = X[row, valid[row]][None], pairs[row][None, :, valid[row]][..., valid[row]]
        same = regard.Mask(causal, pairwise=there if share else None)
        chosen = mixer.plan(alone, mask=same)["chosen"]
        weights = mixer.attention_map(alone, mask=same)[0]
        q, k, _ = mixer._split(alone, None)
        scores = mixer._index(q, k, same)(slice(0, alone.shape[1]))[0]
        scores = scores.expand(-1, chosen.shape[1], -1, -1)
        for c in range(chosen.shape[1]):
            of = weights[c * H // chosen.shape[1] : (c + 1) * H // chosen.shape[1]].mean(0)
            for i in range(alone.shape[1]):
                at = [j for j in chosen[0, c, i].tolist() if j >= 0]
                p = torch.stack([of[i, j * C : (j + 1) * C].sum() for j in at])
                log_q = scores[0, c, i, at].log_softmax(0)
                total += (torch.xlogy(p, p) - p * log_q).sum() / chosen.shape[1]
    expected = total / valid.sum()
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(expected, [*index.values()])
    torch.testing.assert_close([*moved.values()], [*gradients])
    assert built("softmax").auxiliary_loss(X) is None


def test_documents_have_the_auxiliary_loss_of_rows():
    mixer = built("indexed", top_k=3)
    packed = regard.Mask(causal=True, documents=(torch.arange(12) // 4).expand(2, -1))
    apart = mixer.auxiliary_loss(X.unflatten(1, (3, 4)).flatten(0, 1), mask=CAUSAL)
    torch.testing.assert_close(mixer.auxiliary_loss(X, mask=packed), apart)
    assert mixer.auxiliary_loss(X, context=X[:, :5]).isfinite()


def test_a_plan_holds_every_query_of_a_row_longer_than_the_model_is_wide():
    mixer = regard.build("moba", dim=4, num_heads=2, block_size=2, top_k=2)
    chosen = mixer.plan(torch.randn(1, 9, 4), mask=CAUSAL)["chosen"]
    assert chosen.shape[2] == 9 and (chosen[:, :, -1] == 4).any()
