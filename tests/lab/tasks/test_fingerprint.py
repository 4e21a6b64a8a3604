"""The fingerprint: answers by the rule, what its lines cannot do, the structures that are entered, and short runs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from questions._tasks import Parity, Reach, TwoBack
from regard.core import OptionError
from regard.lab.data.records import IGNORED, Examples
from regard.lab.experiment.laws import sizes
from regard.lab.experiment.lines import LINES, Bag, Unmixed
from regard.lab.experiment.trial import as_run, model_config
from regard.lab.questions.fingerprint import ENTRIES, FINGERPRINT, allowed_share
from regard.lab.tasks import ListOps, Splits
from regard.lab.tasks.fingerprint import Address, Capacity, Counting, Lookup, Order
from regard.lab.train.short import Short, short_fit
from regard.mixers import MIXERS
from regard.testing import check_mixer

COLUMNS = {column.name: column for column in FINGERPRINT.trained}


def lookup(task, row):
    pairs = dict(divmod(token - 1, task.num_values) for token in row[: task.num_pairs])
    first = 1 + task.num_values * task.num_keys
    assert len(pairs) == task.num_pairs
    return [IGNORED] * task.num_pairs + [pairs[token - first] for token in row[task.num_pairs :]]


def order(task, row):
    assert set(row[task.length :]) == {task.symbols + 1}
    return [IGNORED] * task.length + [row[place] - 1 for place in task.order]


def address(task, row):
    places = [token - 1 - task.symbols for token in row[task.length :]]
    return [IGNORED] * task.length + [row[place] - 1 for place in places]


def counting(task, row):
    ends = range(1, len(row) + 1) if task.causal else [len(row)] * len(row)
    return [min(row[:end].count(x), task.most) - 1 for x, end in zip(row, ends, strict=True)]


def reach(task, row):
    symbols, named = zip(*(divmod(token - 1, len(task.distances)) for token in row), strict=True)
    far, first = [task.distances[one] for one in named], task.distances[-1]
    return [symbols[i - far[i]] if i >= first else IGNORED for i in range(len(row))]


def parity(task, row):
    return [(sum(row[:end]) - end) % 2 for end in range(1, len(row) + 1)]


def two_back(task, row):
    first, last, start = task.segment, 2 * task.segment, 1 + task.num_values * task.num_keys
    told = row[:first] + row[last : last + task.near]
    pairs = dict(divmod(token - 1, task.num_values) for token in told)
    asked = [token - start for token in row[last + task.near :]]
    assert {*asked[: task.near]} == {*list(pairs)[first:]} and min(row[first:last]) >= start
    return [IGNORED] * (last + task.near) + [pairs[key] for key in asked]


RULES = {
    Lookup: lookup, Capacity: lookup, Order: order, Address: address, Counting: counting,
    Reach: reach, Parity: parity, TwoBack: two_back,
}  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", RULES)
def test_answers_are_those_of_the_rule(kind, causal):
    task = kind(causal=causal)
    rows = task.draw(20, np.random.default_rng(1))
    for tokens, labels in zip(rows.tokens.tolist(), rows.labels.tolist(), strict=True):
        assert labels == RULES[kind](task, tokens) and max(labels) < task.num_classes
        assert len(tokens) == task.max_len and 1 <= min(tokens) and max(tokens) < task.vocab_size


@pytest.mark.parametrize(
    ("task", "chance"),
    [(Lookup(), 1 / 4), (Order(), 1 / 16), (Address(), 1 / 16), (Counting(), 0.2)],
)
def test_chance_is_measured_on_the_test_rows(task, chance):
    splits = task.load()
    assert len(splits.valid) == len(splits.test) == 512
    assert task.trivial_baseline(splits) == pytest.approx(chance, abs=0.01)


def test_the_test_rows_stay_when_training_grows():
    small, large = Order(train_size=64).load(), Order(train_size=128).load()
    assert torch.equal(small.test.labels, large.test.labels)
    assert torch.equal(small.train.labels, large.train.labels[: len(small.train.labels)])
    assert not torch.equal(small.test.labels, small.valid.labels)
    assert not torch.equal(small.test.labels, Order(train_size=64, seed=1).load().test.labels)


@pytest.mark.parametrize("line", [Unmixed, Bag])
def test_lines_keep_the_laws(line):
    assert "causality" in check_mixer(lambda: line(24))
    assert sum(p.numel() for p in line(24).parameters()) == 4 * 24**2


@pytest.mark.parametrize("causal", [False, True])
def test_lines_cannot_tell_order(causal):
    """What a line answers at a blank is the same for all orders of the symbols, or for all symbols."""
    task, column = Order(), COLUMNS["order"]
    column = replace(column, task=replace(task, causal=causal))
    tokens = torch.from_numpy(task.draw(1, np.random.default_rng(3)).tokens)
    told, blanks = tokens.split(task.length, 1)
    turned, other = torch.cat([told.flip(1), blanks], 1), torch.cat([1 + told % task.symbols, blanks], 1)  # fmt: skip
    asked = slice(task.length, None)
    unmixed, bag, softmax = (model_config(column, one).build().eval() for one in (*LINES, ENTRIES[0]))  # fmt: skip
    for model, same in ((bag, turned), (unmixed, other)):
        nn.init.zeros_(model.position.weight[: task.length])  # places add up to the same
        torch.testing.assert_close(model(same)[:, asked], model(tokens)[:, asked])
    assert not torch.allclose(softmax(turned)[:, asked], softmax(tokens)[:, asked])


def test_every_mechanism_is_entered_once_with_a_structure_below_half_of_the_row():
    assert [entry.name for entry in ENTRIES] == MIXERS.names()
    for entry in ENTRIES:
        assert entry.label.startswith(entry.name)
        for column in COLUMNS.values():
            length = column.task.max_len
            mixer = entry.build(dim=32, num_heads=4, max_len=length)
            assert all(2 * size < length for _, size in sizes(mixer.options)), entry.label


SHARES = {"softmax": 24, "local": 0, "strided": 4, "head_mix": 1, "bigbird": 12, "gau": 24, "gated_delta": 24, "nystrom": 24, "longformer": 1}  # fmt: skip
"""Of 24 needed pairs; gated_delta is causal alone, which all of them are, and longformer has a global token."""


def test_share_of_allowed_pairs():
    by_name = {entry.name: entry for entry in ENTRIES}
    order = COLUMNS["order"]
    for name, share in SHARES.items():
        entry = by_name[name]
        asked = order if entry.sketch().capabilities.bidirectional else order.causally()
        assert allowed_share(entry, asked) == share / 24, name
    assert allowed_share(by_name["longformer"], order.causally()) == 0 == allowed_share(LINES[0], order)  # fmt: skip
    assert allowed_share(by_name["reformer"], order) is None
    assert allowed_share(by_name["softmax"], COLUMNS["lookup"]) is None


def test_a_short_run_learns_and_stops_when_solved():
    task = Address(length=2, symbols=2, train_size=32 * 200, valid_size=64, test_size=64)
    column, splits, found = replace(COLUMNS["address"], task=task), task.load(), []
    for _ in range(2):
        torch.manual_seed(0)
        model = model_config(column, ENTRIES[0]).build()
        result = short_fit(model, splits, Short(steps=200), lr=1e-2)
        found.append((replace(result, seconds=0.0), nn.utils.parameters_to_vector(model.parameters())))  # fmt: skip
    (first, weights), (second, same) = found
    assert first.steps < 200 and first.value > 0.95
    assert len(first.correct) == 64 and np.mean(first.correct) == pytest.approx(first.value)
    assert first == second and torch.equal(weights, same)


def test_an_index_is_taught_by_its_own_loss():
    column = COLUMNS["address"]
    splits = replace(column.task, train_size=3200, valid_size=8, test_size=8).load()
    entry = next(entry for entry in ENTRIES if entry.mixer == "indexed")
    torch.manual_seed(0)
    model = model_config(column, entry).build()
    index = model.block.mixer.index_query
    before = index.weight.detach().clone()
    short_fit(model, splits, Short(steps=20), lr=1e-2)
    assert (index.weight - before).abs().max() > 1e-2


def test_a_trial_adds_the_loss_that_a_mixer_has_of_its_own_whatever_its_budget():
    for column in (COLUMNS["address"], COLUMNS["bytes"]):
        splits = replace(COLUMNS["address"].task, train_size=32, valid_size=8, test_size=8).load()
        entries = [entry for entry in ENTRIES if entry.mixer in ("softmax", "indexed")]
        runs = {one.mixer: as_run(column, one, 0, 1e-2, splits, None) for one in entries}
        assert (runs["softmax"].train.auxiliary, runs["indexed"].train.auxiliary) == (None, 1.0)


def test_a_short_run_says_what_it_cannot_train():
    rows, few = np.ones((3, 4), int), np.full((3, 4), IGNORED)
    few[0, 1:] = few[1, 2:] = 1
    unlike = Splits(*[Examples.windows(rows, few)] * 3)
    sums = ListOps(train_size=64, valid_size=8, test_size=8).load()
    for splits, what in ((unlike, "ask equally many tokens"), (sums, "rows of one length")):
        with pytest.raises(OptionError, match=what):
            short_fit(nn.Linear(1, 1), splits, Short(steps=1, batch_size=2), lr=1e-2)
