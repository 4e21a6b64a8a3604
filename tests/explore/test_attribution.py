"""Attributions: their closed forms, what each of them promises, and the numbers that compare them."""

import math
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn

from regard import OptionError, ShapeError, UnsupportedError, explore
from regard.explore import flow, integrated_gradients, layers, rollout
from regard.models import TransformerXLConfig
from regard.testing.subject import normal
from tests.models.small import classifier, language_model, prompts, ragged, transformer
from tests.packaging import ROOT
from tests.refused import assert_refused

MAPS = [*normal(2, 1, 2, 3, 3).softmax(-1)]  # of two layers


def test_rollout_of_uniform_and_of_even_causal_weights_has_its_closed_form():
    T, L = 5, 4
    maps = [torch.full((2, 3, T, T), 1 / T, dtype=torch.float64)] * L
    expected = (1 - 2**-L) / T + 2**-L * torch.eye(T, dtype=torch.float64)
    torch.testing.assert_close(rollout(maps)[0], expected)
    for weights in maps:
        weights[:, :, 2] = 0  # this query sees nothing, and keeps its token
    assert rollout(maps)[0, 2].tolist() == [0, 0, 1, 0, 0]
    # That of a deep decoder ends at the first token, whatever its heads attend to.
    even = torch.ones(14, 14, dtype=torch.float64).tril()
    even = (even / even.sum(-1, keepdim=True))[None, None]
    share = rollout([even] * 30)[0, -1, 0].item()
    assert f"a share of {share:.3f}." in (ROOT / "docs/explore.md").read_text()


@pytest.mark.parametrize("attribute", [rollout, flow])
def test_weights_that_are_no_shares_are_refused_or_normalised(attribute):
    signed, wide = [weights - 0.4 for weights in MAPS], torch.ones(1, 1, 3, 4)
    full = [torch.full((1, 2, 3, 3), size) for size in (1.0, 2e38, 1e-40, torch.nan)]
    normalised = partial(attribute, normalise=True)
    assert_refused(
        (UnsupportedError, "signed weights", lambda: attribute(signed)),
        (ShapeError, r"dense float tensors \[B H T T\]", lambda: attribute([wide])),
        (OptionError, r"maps\[0\] must hold finite numbers", lambda: normalised(full[3:])),
    )
    assert torch.isfinite(normalised(signed)).all()
    even, *ends = (normalised([weights]) for weights in full[:3])
    assert all(torch.allclose(end, even, atol=1e-4) for end in ends)  # 1e-40 has few digits


def test_flow_through_two_layers_is_what_both_let_through():
    maps, query = MAPS, 1
    first, second = (0.5 * m.mean(1)[0] + 0.5 * torch.eye(3, dtype=torch.float64) for m in maps)
    least = torch.minimum(first, second[query, :, None]).sum(0)  # over the places between
    torch.testing.assert_close(flow(maps, query=query)[0], least, rtol=0, atol=1e-12)
    unseen = torch.tensor([[[[1.0, 0, 0], [1, 0, 0], [1, 0, 0]]]], dtype=torch.float64)
    assert flow([unseen], residual=0.0)[0].tolist() == [1, 0, 0]
    for attribute, odd in product((flow, rollout), (unseen[..., :2, :2], maps[1].float())):
        with pytest.raises(ShapeError, match="maps must be of one batch, length and type"):
            attribute([maps[0], odd])


def test_integrated_gradients_are_complete():
    """And give padding nothing; of a language model, the answer is its last valid token."""
    valid = ragged()
    for model in (classifier(), language_model()):
        many, few = (integrated_gradients(model, prompts(), valid=valid, steps=n) for n in (64, 4))
        assert many.gap.abs().max() < 1e-3 and many.gap.abs().max() < few.gap.abs().max()
        assert few.scores[~valid].eq(0).all() and few.scores[valid].ne(0).all()
        with torch.no_grad():
            same = integrated_gradients(model, prompts(), valid=valid, steps=4)
        assert torch.equal(same.scores, few.scores)
    with pytest.raises(OptionError, match=r"baseline .99. must be below"):
        integrated_gradients(classifier(), prompts(), baseline=99)


def test_integrated_gradients_where_the_backward_looks_tokens_up_again():
    options = {"vocab_size": 40, "dim": 24, "num_heads": 3, "segment_len": 16, "mem_len": 16}
    scores = []
    for checkpoint in (False, True):
        torch.manual_seed(0)
        model = TransformerXLConfig(**options, checkpoint=checkpoint).build()
        tokens = torch.arange(3, 13)[None]
        scores.append(integrated_gradients(model, tokens, label=5, steps=2).scores)
    torch.testing.assert_close(*scores, rtol=0, atol=0)


def test_integrated_gradients_are_of_the_tokens_where_positions_are_looked_up_first():
    torch.manual_seed(0)
    word, place, out = nn.Embedding(20, 8), nn.Embedding(32, 8), nn.Linear(8, 3)

    class Places(nn.Module):
        def __init__(self, first: bool):
            super().__init__()
            self.word, self.place, self.out, self.first = word, place, out, first

        def forward(self, tokens):
            tables = [(self.place, torch.arange(tokens.shape[1])), (self.word, tokens)]
            parts = [table(ids) for table, ids in tables[:: 1 if self.first else -1]]
            return self.out(torch.tanh(parts[0] + parts[1]).sum(1))

    tokens = torch.randint(20, (1, 6))
    found = [integrated_gradients(Places(first), tokens, label=0).scores for first in (0, 1)]
    torch.testing.assert_close(*found)


def test_leave_one_out_is_the_model_without_the_token():
    model, tokens, valid = classifier(), prompts(), ragged()
    found = explore.leave_one_out(model, tokens, valid=valid, label=2, chunk=3)
    assert found[~valid].eq(0).all()
    row, token = 1, 3
    kept = [t for t in range(7) if valid[row, t] and t != token]
    with torch.no_grad():
        whole = model(tokens[row : row + 1], valid=valid[row : row + 1])[0, 2]
        without = model(tokens[row : row + 1, kept])[0, 2]
    torch.testing.assert_close(found[row, token], whole - without)


@pytest.mark.parametrize("mixer", ["softmax", "gau", "synthesizer_dense", "linear"])
def test_gradients_of_weights_are_those_of_a_nudge(mixer):
    """One weight of the last layer moves the answer by dF/dA: what is projected is moved by a part of a value."""
    model, tokens, valid = classifier(mixer=mixer), prompts(), ragged()
    found = explore.gradient_times_attention(model, tokens, valid=valid, label=1)
    read = layers(model, tokens, valid=valid)
    assert [f.shape for f in found] == [layer.found.values.shape for layer in read]
    assert found[0].abs().sum() > 0
    (_, _, last, _, (values, *_)), (row, t, s) = read[-1], (1, 2, 0)
    owner = getattr(last, "heads", None) or getattr(last, "unit", None) or last.values

    def keep(_, args, kwargs):
        step = 1e-6 * last.observe(args[0], **kwargs).v[row, 0, s]
        if getattr(owner, "gate", None) is not None:
            step *= torch.nn.functional.silu(owner.gate(args[0]))[row, t]

        def nudge(_, given):
            given[0][row, t, : len(step)] += step

        owner.out.register_forward_pre_hook(nudge)

    with torch.no_grad():
        before = model(tokens, valid=valid)[row, 1]
        last.register_forward_pre_hook(keep, with_kwargs=True)
        after = model(tokens, valid=valid)[row, 1]
    slope = found[-1][row, 0, t, s] / values[row, 0, t, s]
    assert ((after - before) / 1e-6).item() == pytest.approx(slope.item(), rel=1e-4, abs=1e-8)


def test_wrong_models_labels_and_outputs_are_refused():
    graded, left_out, text = explore.gradient_times_attention, explore.leave_one_out, prompts()
    fnet, reversible = classifier(mixer="fnet"), classifier(residual="reversible")
    one, frozen, line = classifier(), classifier().requires_grad_(False), nn.Linear(3, 3)
    with torch.inference_mode(), pytest.raises(UnsupportedError, match="inference_mode"):
        integrated_gradients(one, text)
    for read in (layers, graded, integrated_gradients, left_out):
        with pytest.raises(OptionError, match="unexpected keyword argument 'zork'"):
            read(one, text, zork=1)
    none, four = "no gradient reaches the outputs of its", torch.ones(4, 7, dtype=torch.bool)
    classes = r"label \(9\) must be one of 5 classes"
    assert_refused(
        (UnsupportedError, "fnet does not support attention_map", lambda: graded(fnet, text)),
        (UnsupportedError, none, lambda: graded(reversible, text)),
        (UnsupportedError, none, lambda: graded(frozen, text)),
        (UnsupportedError, "none of its mixers", lambda: layers(line, torch.zeros(2, 3))),
        (UnsupportedError, "none of its mixers", lambda: graded(line, torch.zeros(2, 3))),
        (ShapeError, "must have 3 rows, as tokens", lambda: left_out(one, text, valid=four)),
        (ShapeError, "valid must be a tensor", lambda: left_out(one, text, valid=3)),
        (OptionError, classes, lambda: left_out(one, text, label=9)),
        (ShapeError, "answer=", lambda: explore.last_logits(torch.zeros(2), None)),
    )


def test_layers_of_an_encoder_decoder_are_moved_back():
    model, source, target = transformer(), prompts(), prompts(5)
    shown = torch.ones(3, 5, dtype=torch.bool)
    shown[0, :2] = False
    found = layers(model, source, target, valid=ragged(), target_valid=shown)
    assert [layer.path.split(".")[0] for layer in found] == ["encoder"] * 2 + ["decoder"] * 4
    expected = model.cross_attention(source, target, valid=ragged(), target_valid=shown)
    cross = [layer.found.values for layer in found if layer.cross]
    torch.testing.assert_close(cross, [*expected])
    own = next(x.found.values for x in found if x.path.startswith("decoder") and not x.cross)
    assert own[0, :, 2:, 2:].sum(-1).allclose(torch.ones(1, dtype=torch.float64))
    assert own[0, :, :2].eq(0).all() and own[0, :, :, :2].eq(0).all()


def test_a_translation_is_explained_at_the_last_token_of_its_target():
    """Whatever is absent in the source, which is as long, and whatever ids are there."""
    model, source, target = transformer(), prompts(), prompts(7)
    valid = ragged()
    shown = valid.flip(0)
    row = {"valid": valid[:1], "target_valid": shown[:1]}
    last = int(shown[0].nonzero()[-1])
    found = explore.leave_one_out(model, source[:1], target[:1], **row)
    with torch.no_grad():
        whole = model(source[:1], target[:1], **row)[0, last]
        less = valid[:1].clone()
        less[0, 1] = False
        without = model(source[:1], target[:1], **{**row, "valid": less})[0, last]
    at = whole.argmax()
    torch.testing.assert_close(found[0, 1], whole[at] - without[at])
    odd = source.masked_fill(~valid, -100)
    scores = [integrated_gradients(model, ids, target, valid=valid).scores for ids in (source, odd)]
    torch.testing.assert_close(*scores)


def test_correlations_are_those_of_scipy_and_overlap_counts_the_largest():
    from scipy import stats  # takes seconds to import

    generator = torch.Generator().manual_seed(0)
    a = torch.randint(0, 6, (40,), generator=generator).double()  # with ties
    b = a + 3 * torch.randn(40, generator=generator, dtype=torch.float64).round()
    assert explore.kendall(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)
    assert explore.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert explore.kendall(a, -a) == pytest.approx(-1)
    assert explore.spearman(a, a) == pytest.approx(1)
    weights, links = torch.tensor([[[1.0, 0]], [[1, torch.nan]]]), torch.tensor([[True, False]])
    rates = explore.alignment_error_rate(weights, links)
    assert rates[0] == 0 and rates[1].isnan()
    lacking = a.where(a > 0, torch.nan)
    assert all(z != z for z in explore.agreement({"a": lacking, "b": b})[0][2:])
    # Overlap counts the largest by magnitude.
    a, b = torch.tensor([5.0, -4.0, 1.0, 0.0]), torch.tensor([0.0, 4.0, 1.0, 5.0])
    assert explore.overlap(a, b, k=2) == 0.5
    rows = explore.agreement({"a": a, "b": b, "c": a}, k=2)
    found = [(r.first, r.second, r.overlap) for r in rows]
    assert found == [("a", "b", 0.5), ("a", "c", 1.0), ("b", "c", 0.5)]
    with pytest.raises(ShapeError, match="one length"):
        explore.agreement({"a": a, "b": b[:2]})


def test_alignment_error_rate_of_right_wrong_and_missing_links():
    links = torch.eye(3, dtype=torch.bool)
    right, wrong = torch.eye(3), torch.eye(3).roll(1, 0)
    half = torch.eye(3) * torch.tensor([[1.0], [1.0], [0.0]])  # the last word links nothing
    found = explore.alignment_error_rate(torch.stack([right, wrong, half]), links)
    assert found.tolist() == pytest.approx([0, 1, 1 - 4 / 5])


def test_statistics_and_divergence_of_plain_heads():
    T = 4
    eye, same = torch.eye(T), torch.full((T, T), 1 / T)
    before = torch.eye(T).roll(1, 0)
    before[0] = 0
    found = explore.head_statistics(torch.stack([eye, same, before])[None].double())
    assert found.entropy[0].tolist() == pytest.approx([0, math.log(T), 0])
    assert found.distance[0].tolist() == pytest.approx([0, 1.25, 1])
    assert found.self[0].tolist() == pytest.approx([1, 1 / T, 0])
    assert found.previous[0].tolist() == pytest.approx([0, 3 / 16, 1])
    assert found.next[0].tolist() == pytest.approx([0, 3 / 16, 0])
    assert found.first[0].tolist() == pytest.approx([1 / T, 1 / T, 1 / 3])
    # Divergence runs from alike to apart.
    weights = torch.stack([torch.eye(4), torch.eye(4), torch.eye(4).roll(1, 0)])[None].double()
    found = explore.head_divergence(weights)[0]
    assert found[0].tolist() == pytest.approx([0, 0, math.log(2)])
    torch.testing.assert_close(found, found.T)
