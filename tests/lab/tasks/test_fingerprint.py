from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from regard.lab.data.records import IGNORED
from regard.lab.experiment.laws import sizes
from regard.lab.experiment.lines import LINES, Bag, Unmixed
from regard.lab.experiment.trial import model_config
from regard.lab.questions.fingerprint import ENTRIES, FINGERPRINT, allowed_share
from regard.lab.tasks.fingerprint import Ability, Address, Capacity, Counting, Lookup, Order
from regard.lab.train.short import Short, short_fit
from regard.testing import check_mixer

COLUMNS = {column.name: column for column in FINGERPRINT.trained}
TASKS = (Lookup, Order, Address, Counting, Capacity)
BOTH = [(task, causal) for task in TASKS for causal in (False, True)]


def lookup(task: Lookup, row: list[int]) -> list[int | None]:
    pairs = dict(divmod(token - 1, task.num_values) for token in row[: task.num_pairs])
    first = 1 + task.num_values * task.num_keys
    assert len(pairs) == task.num_pairs
    return [None] * task.num_pairs + [pairs[token - first] for token in row[task.num_pairs :]]


def order(task: Order, row: list[int]) -> list[int | None]:
    assert set(row[task.length :]) == {task.symbols + 1}
    return [None] * task.length + [row[place] - 1 for place in task.order]


def address(task: Address, row: list[int]) -> list[int | None]:
    places = [token - 1 - task.symbols for token in row[task.length :]]
    return [None] * task.length + [row[place] - 1 for place in places]


def counting(task: Counting, row: list[int]) -> list[int | None]:
    ends = range(1, len(row) + 1) if task.causal else [len(row)] * len(row)
    return [
        min(row[:end].count(token), task.most) - 1 for token, end in zip(row, ends, strict=True)
    ]


ANSWERS = {"lookup": lookup, "capacity": lookup, "order": order, "address": address}


@pytest.mark.parametrize(("kind", "causal"), BOTH)
def test_answers_are_those_of_the_rule(kind: type[Ability], causal: bool):
    task = kind(causal=causal)
    rows = task.draw(20, np.random.default_rng(1))
    answer = ANSWERS.get(task.name, counting)
    for tokens, labels in zip(rows.tokens.tolist(), rows.labels.tolist(), strict=True):
        assert [None if label == IGNORED else label for label in labels] == answer(task, tokens)
        assert len(tokens) == task.max_len and 1 <= min(tokens) and max(tokens) < task.vocab_size
        assert max(labels) < task.num_classes


@pytest.mark.parametrize(
    ("task", "chance"),
    [(Lookup(), 1 / 4), (Order(), 1 / 16), (Address(), 1 / 16), (Counting(), 0.2)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_chance_is_measured_on_the_test_rows(task: Ability, chance: float):
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
def test_lines_keep_the_laws(line: type):
    assert "causality" in check_mixer(lambda: line(24))
    count = sum(p.numel() for p in line(24).parameters())
    assert count == 4 * 24**2


@pytest.mark.parametrize("causal", [False, True])
def test_lines_cannot_tell_order(causal: bool):
    """What a line answers at a blank is the same for all orders of the symbols, or for all symbols."""
    task = Order()
    tokens = torch.from_numpy(task.draw(1, np.random.default_rng(3)).tokens)
    turned = torch.cat([tokens[:, : task.length].flip(1), tokens[:, task.length :]], 1)
    other = torch.cat([1 + tokens[:, : task.length] % task.symbols, tokens[:, task.length :]], 1)
    asked = slice(task.length, None)
    column = replace(COLUMNS["order"], task=replace(task, causal=causal))
    unmixed, bag = (model_config(column, line).build().eval() for line in LINES)
    for model, same in ((bag, turned), (unmixed, other)):
        torch.nn.init.zeros_(model.position.weight[: task.length])  # places add up to the same
        torch.testing.assert_close(model(same)[:, asked], model(tokens)[:, asked])
    softmax = model_config(column, ENTRIES[0]).build().eval()
    assert not torch.allclose(softmax(turned)[:, asked], softmax(tokens)[:, asked])


def test_every_mechanism_is_entered_once_with_a_structure_below_half_of_the_row():
    from regard.mixers import MIXERS

    assert [entry.name for entry in ENTRIES] == MIXERS.names()
    for entry in ENTRIES:
        assert entry.label.startswith(entry.name)
        for column in COLUMNS.values():
            length = column.task.max_len
            mixer = entry.build(dim=32, num_heads=4, max_len=length)
            assert all(2 * size < length for _, size in sizes(mixer.options)), entry.label


def test_share_of_allowed_pairs():
    by_name = {entry.name: entry for entry in ENTRIES}
    order, lookup = COLUMNS["order"], COLUMNS["lookup"]
    for name, share in (
        ("softmax", 24),
        ("local", 0),
        ("strided", 4),
        ("head_mix", 1),
        ("bigbird", 12),
        ("gau", 24),
        ("gated_delta", 24),  # causal alone, which all needed pairs are
        ("nystrom", 24),
    ):
        entry = by_name[name]
        asked = order if entry.sketch().capabilities.bidirectional else order.causally()
        assert allowed_share(entry, asked) == share / 24, name
    assert allowed_share(by_name["longformer"], order) == 1 / 24  # its global token
    assert allowed_share(by_name["longformer"], order.causally()) == 0
    assert allowed_share(by_name["reformer"], order) is None
    assert allowed_share(by_name["softmax"], lookup) is None
    assert allowed_share(LINES[0], order) == 0


def test_a_short_run_learns_and_stops_when_solved():
    task = Address(length=2, symbols=2, train_size=32 * 200, valid_size=64, test_size=64)
    column = replace(COLUMNS["address"], task=task)
    splits, results, weights = task.load(), [], []
    for _ in range(2):
        torch.manual_seed(0)
        model = model_config(column, ENTRIES[0]).build()
        results.append(short_fit(model, splits, Short(steps=200), lr=1e-2))
        weights.append(nn.utils.parameters_to_vector(model.parameters()))
    first, second = results
    assert first.steps < 200 and first.value > 0.95
    assert len(first.correct) == 64 and np.mean(first.correct) == pytest.approx(first.value)
    assert (first.value, first.steps, first.curve) == (second.value, second.steps, second.curve)
    assert torch.equal(*weights)
