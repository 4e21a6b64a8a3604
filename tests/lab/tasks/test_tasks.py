"""Every task keeps its promises: items within bounds, equal data for equal options, a loss, a score and a baseline."""

import inspect
import math
import re
import sys

import pytest
import torch
from torch import nn

from regard.core import OptionError
from regard.lab.data.sources.table import SOURCES
from regard.lab.data.splits import split_of
from regard.lab.tasks import IGNORED, TASKS, Digits, ListOps, Pathfinder, Recall, StdlibBytes
from regard.lab.tasks.language_models import read_modules, stdlib_root
from regard.lab.train.batches import in_order

SMALL = {
    "listops": ListOps(train_size=300, valid_size=60, test_size=90),
    "digits": Digits(),
    "stdlib_bytes": StdlibBytes(length=64, valid_size=20, test_size=30),
    "pathfinder": Pathfinder(train_size=80, valid_size=40, test_size=60),
    "recall": Recall(train_size=200, valid_size=40, test_size=60),
}


@pytest.fixture(scope="module", params=SMALL)
def task(request):
    return SMALL[request.param]


@pytest.fixture(scope="module")
def splits(task):
    return task.load()


def parts(splits):
    return {"train": splits.train, "valid": splits.valid, "test": splits.test}


class Constant(nn.Module):
    """The same logits whatever the input: nothing is known by default."""

    def __init__(self, task, logits=None):
        super().__init__()
        self.per_token = task.kind == "language_model"
        outputs = task.vocab_size if self.per_token else task.num_classes
        self.logits = nn.Parameter(torch.zeros(outputs) if logits is None else logits)

    def forward(self, tokens, valid=None):
        assert not torch.is_grad_enabled() or self.training
        return self.logits.expand(*(tokens.shape if self.per_token else tokens.shape[:1]), -1)


def test_items_are_within_what_the_task_declares(task, splits):
    outputs = len(Constant(task).logits)
    for part in parts(splits).values():
        assert len(part) > 0
        for item in (part[i] for i in range(0, len(part), 17)):
            tokens, label = item["tokens"], item["label"]
            assert 1 <= len(tokens) <= task.max_len
            assert tokens.min() > 0 and tokens.max() < task.vocab_size
            assert label.shape == (tokens.shape if task.kind == "language_model" else ())
            asked = label[label != IGNORED]
            assert asked.numel() == 0 or (asked.min() >= 0 and asked.max() < outputs)


def test_equal_options_give_equal_data_and_another_seed_gives_other_data(task, splits):
    again = task.load()
    assert again.sha256 == splits.sha256
    assert torch.equal(again.test[3]["tokens"], splits.test[3]["tokens"])
    other = type(task)(**{**vars(task), "seed": 1}).load()
    assert other.sha256 != splits.sha256


@pytest.mark.parametrize(("name", "size"), [("digits", 1797), ("listops", 450)])
def test_no_example_is_in_two_splits(name, size):
    every = parts(SMALL[name].load()).values()
    seen = [bytes(part[i]["tokens"].tolist()) for part in every for i in range(len(part))]
    assert len(set(seen)) == len(seen) == size


def test_batches_pad_on_the_right_and_say_so(task, splits):
    batch = task.collate([splits.train[i] for i in range(5)])
    lengths = splits.train.lengths[:5]
    assert batch["tokens"].shape == (5, int(lengths.max()))
    if lengths.unique().numel() == 1:
        assert batch["valid"] is None
    else:
        assert batch["valid"].sum(1).tolist() == lengths.tolist()
        assert torch.equal(batch["valid"], batch["tokens"] != 0)
    for row, length in enumerate(lengths):
        assert torch.equal(batch["tokens"][row, :length], splits.train[row]["tokens"])


def test_trivial_baseline_is_what_a_constant_model_scores(task, splits):
    if task.name == "recall":
        pytest.skip("its baseline answers from the row")
    labels = splits.train.labels
    outputs = len(Constant(task).logits)
    counts = torch.bincount(labels[labels != IGNORED], minlength=outputs).double()
    counts += task.kind == "language_model"
    model = Constant(task, (counts / counts.sum()).log())
    score = task.score(model, in_order(splits.test, 32, task.collate))
    assert score == pytest.approx(task.trivial_baseline(splits), abs=1e-6) and model.training
    with pytest.raises(OptionError, match=f"{task.name}: score needs at least one"):
        task.score(model, [])


def test_loss_is_the_mean_in_nats_and_can_be_learned_from(task, splits):
    model = Constant(task)
    loss = task.loss(model, task.collate([splits.train[i] for i in range(5)]))  # odd: two classes
    assert float(loss.detach()) == pytest.approx(math.log(len(model.logits)), rel=1e-5)
    loss.backward()
    assert model.logits.grad.abs().sum() > 0


def test_listops_slices_are_consecutive_and_the_checksum_is_pinned():
    one = SMALL["listops"].load()
    two = ListOps(train_size=300, valid_size=90, test_size=60).load()
    assert torch.equal(one.valid[0]["tokens"], two.valid[0]["tokens"])
    assert torch.equal(one.test[0]["tokens"], two.valid[60]["tokens"])
    assert one.sha256 == "abdff5389ef65868ce40b39a72f840f83e3e0adfa81f3d699175ed11d6c596be"


def test_stdlib_evaluation_asks_each_held_out_byte_once():
    modules = read_modules(stdlib_root())
    splits = StdlibBytes(length=512, valid_size=10**6, test_size=10**6).load()
    for name, part in parts(splits).items():
        texts = [text for module, text in modules.items() if split_of(module) == name]
        asked = part.labels[part.labels != IGNORED]
        want = torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8).long() + 1
        assert torch.equal(torch.bincount(asked, minlength=258), torch.bincount(want, minlength=258))  # fmt: skip
    assert splits.notes["cpython"] == sys.version.split()[0]


def test_every_task_says_its_sources_and_its_baseline():
    named = {name for task in TASKS.values() for name in task.sources}
    assert named == set(SOURCES.names())  # nothing is fetched that no task reads
    assert all(task.baseline for task in TASKS.values())
    for task in TASKS.values():
        read = set(re.findall(r'archive\("(\w+)"\)', inspect.getsource(task)))
        assert read <= set(task.sources), f"{task.name} reads {read - set(task.sources)} too"


WRONG = [
    ("pathfinder", {"contour_length": 2}, r"contour_length \(2\) must be at least 3"),
    ("pathfinder", {"size": 48}, r"size \(48\) must be one of 32, 64, 128"),
    ("digits", {"valid_size": 5}, "at least 10"),
    ("digits", {"test_size": 1790}, "leave"),
    ("fashion_mnist", {"valid_size": 60000}, "valid_size"),
    ("planted_histories", {"num_kinds": 1}, r"num_kinds \(1\)"),
    ("correlated_tasks", {"train_size": 1}, r"train_size \(1\) must be at least 2"),
    ("greek_english", {"metric": "bleu"}, r"metric \('bleu'\) must be 'alignment_error_rate'"),
    ("translate_de", {"metric": "meteor"}, "must be one of .bleu., .rouge_l., .bits_per"),
]


@pytest.mark.parametrize(("name", "options", "words"), WRONG)
def test_options_that_do_not_fit_each_other_are_refused_at_construction(name, options, words):
    with pytest.raises(OptionError, match=words):
        TASKS[name](**options)


class Looks(nn.Module):
    """Answers every token with what followed its first occurrence."""

    def forward(self, tokens, valid=None):
        first = (tokens[:, None, :] == tokens[:, :, None]).int().argmax(-1)
        return nn.functional.one_hot(tokens.gather(1, (first + 1) % tokens.shape[1]), 128).float()


def test_recall_is_solved_by_looking_and_not_without():
    task = SMALL["recall"]
    splits = task.load()
    assert task.score(Looks(), [task.collate([splits.test[i] for i in range(30)])]) == 1.0
    assert 0.08 < task.trivial_baseline(splits) < 0.20


def test_each_key_of_recall_is_asked_once_and_its_value_is_the_label():
    task = Recall(train_size=200, length=40, num_pairs=5, vocab_size=30, spread=0.5, seed=2)
    for row, asked in zip(*(part.tolist() for part in task.load().train.rows()), strict=True):
        pairs = dict(zip(row[0:10:2], row[1:10:2], strict=True))
        assert len(pairs) == 5 and max(pairs) < 15 <= min(pairs.values())
        places = [place for place, label in enumerate(asked) if label != IGNORED]
        assert {row[place]: asked[place] for place in places} == pairs and len(places) == 5
        assert min(places) >= 10 and all(row[place + 1] == asked[place] for place in places)
