"""Every entry of a suite makes a run whose task and model fit; measures and tasks of suites are what they say."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.explore import (
    flow,
    gradient_times_attention,
    integrated_gradients,
    layers,
    rollout,
)
from regard.lab.findings import FINDINGS
from regard.lab.findings.coordinates import SIZE, PlaceReaderConfig, WhitePixel
from regard.lab.findings.explain import (
    AGREES,
    LEFT_OUT,
    RANKS,
    STEPS,
    agreement,
    attributions,
)
from regard.lab.findings.mad import _DRAWN, SIGN, Manipulation
from regard.lab.findings.memory import TUNED
from regard.lab.recipes import Run
from regard.lab.tasks.task import IGNORED
from tests.lab.tasks.test_text_pairs import Linked, batch_of

OURS = (
    "gates",
    "tables",
    "documents",
    "heads",
    "memory",
    "explain",
    "coordinates",
    "lra",
    "synthesizer",
)


@pytest.mark.parametrize("name", OURS)
def test_every_entry_makes_its_run_and_differs_from_the_others(name):
    finding = FINDINGS[name]
    runs = {
        entry.name: (entry.run(), entry.before and entry.before())
        for entry in finding.entries
        if entry.run is not None
    }
    assert all(isinstance(run, Run) for run, _ in runs.values())
    told = [repr(run) for run in runs.values()]
    assert len(set(told)) == len(told)
    assert finding.claims and finding.limits and finding.method
    used = {
        name
        for claim in finding.claims
        for one in claim.expected
        for name in (one.of, one.beside)
        if name
    }
    assert used <= {entry.name for entry in finding.entries}


def test_pre_training_is_redrawn_where_its_entry_says_so():
    tuned = [entry for entry in FINDINGS["memory"].entries if entry.part == TUNED]
    found = {entry.label: entry.before and entry.before() for entry in tuned}
    assert [label for label, run in found.items() if run is None] == [
        "softmax from scratch",
        "XLNet from scratch",
    ]
    redrawn = {label for label, run in found.items() if getattr(run and run.task, "redraw", False)}
    assert redrawn == {
        "XLNet, orders redrawn",
        "XLNet, redrawn spans",
        "XLNet, redrawn, both directions",
    }


def test_agreement_of_weights_and_effects():
    weights = torch.tensor([[0.6, 0.3, 0.1, 0.0], [0.2, 0.5, 0.3, 0.0], [0.9, 0.1, 0.0, 0.0]])
    effects = torch.tensor([[3.0, 2.0, 1.0, 9.0], [3.0, 1.0, 2.0, 0.0], [1.0, 2.0, 0.0, 0.0]])
    exists = torch.tensor([[True] * 3 + [False]] * 2 + [[True, True, False, False]])
    found = agreement(weights, effects, exists)
    assert found[AGREES] == 0.5 and found["by chance"] == pytest.approx(1 / 3)
    assert found[RANKS] == pytest.approx((1 - 1) / 2)
    assert agreement(weights[2:], effects[2:], exists[2:]) == {}


@pytest.mark.parametrize("of", _DRAWN)
def test_what_is_due_in_mad_can_be_known(of):
    """Every label follows from what stands before it in the row, or from the map that all rows share."""
    draw, length = _DRAWN[of]
    tokens, labels = draw(np.random.default_rng(1), 20, length)
    assert tokens.shape == labels.shape == (20, length) and tokens.min() > 0
    assert (labels != IGNORED).any(1).all() and tokens.max() < Manipulation.vocab_size
    shared: dict[int, int] = {}
    for row, due in zip(tokens.tolist(), labels.tolist(), strict=True):
        asked = [at for at in range(length) if due[at] != IGNORED]
        if of == "selective copying":
            assert [due[at] for at in asked] == [t for t in row if t > SIGN]
        elif of == "compression":
            assert due == row
        elif of == "memorization":
            assert all(due[at] == shared.setdefault(row[at - 1], due[at]) for at in asked)
        elif of != "fuzzy recall":  # the pair has been in the row
            pairs = list(zip(row[::2], row[1::2], strict=True))
            assert all((row[at], due[at]) in pairs[: at // 2] for at in asked)
        else:  # the label is the token that follows
            assert all(due[at] == row[at + 1] for at in asked if at + 1 < length)


def test_a_compressor_reads_the_last_output_alone():
    run = FINDINGS["mad"].entries[20].run()
    model = run.model.build().eval()
    outputs = []
    model.encoder.register_forward_hook(lambda module, args, out: outputs.append(out))
    tokens = torch.randint(1, 17, (2, run.task.max_len))
    with torch.no_grad():
        logits = model(tokens, valid=None)
        model.encoder.register_forward_hook(
            lambda module, args, out: torch.cat([torch.zeros_like(out[:, :-1]), out[:, -1:]], 1)
        )
        torch.testing.assert_close(model(tokens, valid=None), logits, rtol=0, atol=0)
    assert run.task.of == "compression" and outputs


class Told(torch.nn.Module):
    """Reads the place off the picture."""

    def forward(self, x):
        at = x.argmax(1)
        return 2 * torch.stack([at // SIZE, at % SIZE], 1) / (SIZE - 1) - 1


@pytest.mark.parametrize("quadrant", [False, True])
def test_the_white_pixel(quadrant):
    task = WhitePixel(quadrant=quadrant)
    splits = task.load()
    parts = [part.columns["x"].argmax(1) for part in (splits.train, splits.valid, splits.test)]
    assert sorted(at for part in parts for at in part.tolist()) == list(range(SIZE**2))
    row, column = parts[2] // SIZE, parts[2] % SIZE
    lower_right = (row >= SIZE // 2) & (column >= SIZE // 2)
    assert lower_right.all() == quadrant and len(parts[2]) < SIZE**2 / 3
    batch = task.collate([splits.test[i] for i in range(len(splits.test))])
    assert task.score(Told(), [batch]) == pytest.approx(0, abs=1e-4)
    assert task.trivial_baseline(splits) > SIZE / 5
    for coordinates in (False, True):
        model = PlaceReaderConfig(coordinates=coordinates).build()
        assert model(batch["x"]).shape == (len(splits.test), 2)
        extra = 2 * 16 * 9 if coordinates else 0
        assert (
            sum(p.numel() for p in model.parameters()) == 3 * (16 * 16 * 9 + 16) + 160 + extra + 130
        )


def linked_model():
    """The finding's model of untrained weights, and a batch of counted words."""
    task = Linked(reads="predicted")
    batch = batch_of(task, task.load().test, 4)
    torch.manual_seed(0)
    (entry,) = [e for e in FINDINGS["explain"].entries if e.label == "softmax"]
    config = replace(entry.run().model, vocab_size=task.vocab_size, max_len=task.max_len)
    return task, config.build(), batch


def test_one_backward_gives_the_gradients_of_all_target_words():
    """In the finding's model no target token reads another after the cross-attention."""
    task, model, batch = linked_model()
    found, _ = attributions(task, model, batch)
    T = batch["target"].shape[1]
    products = []
    for t in range(T):
        label = batch["labels"][:, t].clamp(min=0)[:, None]
        *_, cross = gradient_times_attention(
            model,
            batch["source"],
            batch["target"],
            valid=batch["valid"],
            target_valid=batch["target_valid"],
            answer=lambda out, _, t=t, at=label: out[:, t].log_softmax(-1).gather(1, at),
        )
        assert cross[:, :, torch.arange(T) != t].abs().max() < 1e-6
        products.append(cross[:, :, t].sum(1))
    expected = task.by_words(torch.stack(products, 1), batch)
    there = expected > -torch.inf
    assert torch.allclose(found["gradient x attention"][there], expected[there], atol=1e-6)
    assert expected[there].abs().max() > 1e-3


def test_integrated_gradients_of_all_target_words_are_those_of_each():
    task, model, batch = linked_model()
    masks = {name: batch[name] for name in ("valid", "target_valid")}
    _, integral = attributions(task, model, batch)
    for t in (0, batch["target"].shape[1] - 1):
        at = batch["labels"][:, t].clamp(min=0)[:, None]
        expected = integrated_gradients(
            model,
            batch["source"],
            batch["target"],
            answer=lambda out, _, t=t, at=at: out[:, t].log_softmax(-1).gather(1, at),
            steps=STEPS,
            **masks,
        )
        torch.testing.assert_close(integral.scores[:, t], expected.scores, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(integral.gap[:, t], expected.gap, rtol=1e-3, atol=1e-5)
    assert integral.scores.abs().max() > 1e-3


def test_rollout_and_flow_are_those_of_one_graph():
    """Source and target as the tokens of one stack: the encoder's weights among source tokens, then the cross-attention."""
    task, model, batch = linked_model()
    masks = {name: batch[name] for name in ("valid", "target_valid")}
    encoder, _, cross = layers(model, batch["source"], batch["target"], **masks)
    B, _, T, S = cross.found.values.shape
    first, second = torch.zeros(2, B, 1, S + T, S + T)
    first[:, :, :S, :S] = encoder.found.values.mean(1, keepdim=True)
    second[:, :, S:, :S] = cross.found.values.mean(1, keepdim=True)
    found, _ = attributions(task, model, batch)
    rolled = rollout([first, second])[:, S:, :S]
    flows = [flow([first, second], query=S + t)[:, :S] for t in range(T)]
    for name, scores in (("rollout", rolled), ("flow", torch.stack(flows, 1))):
        expected = task.by_words(scores, batch)
        there = expected > -torch.inf
        torch.testing.assert_close(found[name][there], expected[there])


def test_all_tokens_of_a_word_are_left_out_together():
    task, model, batch = linked_model()
    found, _ = attributions(task, model, batch)
    (row, word), *_ = [
        (row, word)
        for row, words in enumerate(batch["source_word"].tolist())
        for word in words
        if word >= 0 and words.count(word) > 1
    ]
    valid = batch["valid"].clone()
    valid[row, batch["source_word"][row] == word] = False

    def log_probability(shown):
        out = task.answer(model, {**batch, "valid": shown}).log_softmax(-1)
        return out[row].gather(1, batch["labels"][row].clamp(min=0)[:, None])[:, 0]

    with torch.no_grad():
        lost = log_probability(batch["valid"]) - log_probability(valid)
    target = batch["target_word"][row]
    expected = torch.stack([lost[target == w].mean() for w in range(int(target.max()) + 1)])
    torch.testing.assert_close(found[LEFT_OUT][row, word, : len(expected)], expected)


def test_a_source_word_that_is_not_read_loses_nothing_when_left_out():
    task, model, batch = linked_model()
    lost = attributions(task, model, batch)[0][LEFT_OUT]
    assert lost[lost > -torch.inf].abs().max() > 1e-4
    torch.nn.init.zeros_(model.decoder.cross_mixers[0].heads.out.weight)
    lost = attributions(task, model, batch)[0][LEFT_OUT]
    assert lost[lost > -torch.inf].abs().max() < 1e-6
