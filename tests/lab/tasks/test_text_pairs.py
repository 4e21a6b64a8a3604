"""From one text to another: pairs in parts, targets and scores by hand, and alignments read off attention."""

import json
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.core import OptionError, UnsupportedError
from regard.explore.agreement import count_links, error_rate
from regard.lab.data.pairs import Pair, split_pairs
from regard.lab.data.vocabulary import BEGIN, END
from regard.lab.tasks import IGNORED, DebianSummary, Dialogue, GreekEnglish, TextPairs, TranslateDe
from regard.lab.tasks.text_pairs import METRICS
from regard.models import TransformerConfig
from tests.lab.data import test_readers
from tests.registry import packed

NUMBERS = "one two three four five six seven eight nine ten".split()
ZAHLEN = "eins zwei drei vier fünf sechs sieben acht neun zehn".split()


class Counting(TextPairs):
    name = "counting"
    vocab_size: int = 330
    source_len: int = 10
    target_len: int = 12
    valid_size: int = 20
    test_size: int = 40

    def pairs(self) -> list[Pair]:
        order = torch.Generator().manual_seed(0)
        rows = torch.randint(0, 10, (800, 4), generator=order).tolist()
        rows = [row[: 2 + row[3] % 3] for row in rows]
        sides = [[" ".join(words[n] for n in row) for row in rows] for words in (NUMBERS, ZAHLEN)]
        return [*map(Pair, *sides, map(str, rows))]


@pytest.fixture(scope="module")
def task():
    yield Counting()
    TextPairs.prepare.cache_clear()


@pytest.fixture(scope="module")
def splits(task):
    return task.load()


def batch_of(task, part, size=8):
    return task.collate([part[i] for i in range(min(size, len(part)))])


class Says(nn.Module):
    """Generates the answers that it is told; gives the logits that it is told, of which it knows nothing by default."""

    def __init__(self, answers=(), vocab_size=330, logits=None):
        super().__init__()
        self.answers, self.logits = list(answers), torch.zeros(vocab_size)
        self.logits = self.logits if logits is None else logits

    def generate(self, source, start, *, valid, max_new_tokens, eos):
        assert start == BEGIN and eos == END and not self.training and not torch.is_grad_enabled()
        rows, self.answers = self.answers[: len(source)], self.answers[len(source) :]
        return torch.tensor([row + [END] * (max_new_tokens - len(row)) for row in rows])

    def forward(self, source, target, *, valid=None, target_valid=None):
        return self.logits.expand(*target.shape, -1)


def test_no_source_is_in_two_splits(task, splits):
    parts = [list(task.texts(part)) for part in (splits.train, splits.valid, splits.test)]
    sources = [pair.source for part in parts for pair in part]
    assert len(sources) == len(set(sources)) == len(splits.train) + 20 + 40
    for part, expected in zip(parts, split_pairs(task.pairs()).values(), strict=True):
        of = {pair.source: pair.target for pair in expected}
        assert all(of[pair.source] == pair.target for pair in part)
    assert splits.notes["test pairs"].startswith("40 of ")


def test_targets_are_shifted_by_one_and_close_with_the_end(task, splits):
    batch = batch_of(task, splits.train)
    lengths = (batch["labels"] != IGNORED).sum(1)
    assert batch["target"].shape == batch["labels"].shape and (batch["target"][:, 0] == BEGIN).all()
    for row, length in enumerate(lengths.tolist()):
        labels = batch["labels"][row]
        assert labels[length - 1] == END and (labels[length:] == IGNORED).all()
        assert torch.equal(batch["target"][row, 1:length], labels[: length - 1])
        assert (batch["target"][row, length:] == 0).all()
        assert batch["target_valid"][row].sum() == length
    assert task.count(batch) == int(splits.train.lengths[:8].sum())


def test_pairs_that_are_too_long_are_left_out_and_sources_cut_where_the_task_says(task):
    short = replace(task, source_len=6, target_len=9).load()
    for name, longest in (("source", 6), ("target", 9)):
        assert max(len(short.train[i][name]) for i in range(len(short.train))) <= longest
    with pytest.raises(OptionError, match=r"train part has no pair that fits in source_len \(1\)"):
        replace(task, source_len=1).load()
    with pytest.raises(OptionError, match=r"vocab_size \(100\) must be above 259"):
        replace(task, vocab_size=100).load()
    cut = type("Cut", (Counting,), {"cuts_source": True})(source_len=3).load()
    assert max(len(cut.train[i]["source"]) for i in range(len(cut.train))) == 3


def test_loss_is_smoothed_cross_entropy_over_asked_tokens(task, splits):
    batch = batch_of(task, splits.train)
    logits = torch.randn(*batch["labels"].shape, 330, generator=torch.Generator().manual_seed(0))
    asked = batch["labels"] != IGNORED
    log_p = logits.log_softmax(-1)[asked]
    expected = 0.9 * F.nll_loss(log_p, batch["labels"][asked]) - 0.1 * log_p.mean()
    torch.testing.assert_close(task.loss(Says(logits=logits), batch), expected)


def test_score_is_that_of_what_the_model_generates(task, splits):
    vocabulary, texts = task.vocabulary, [pair.target for pair in task.texts(splits.test)]
    batches = [task.collate([splits.test[i] for i in range(k, k + 20)]) for k in (0, 20)]
    model = Says(vocabulary.encode(texts)).train()
    assert task.score(model, batches) == pytest.approx(100) and model.training
    half = ["acht" if i % 2 else text for i, text in enumerate(texts)]
    for name, metric in METRICS.items():
        found = replace(task, metric=name).score(Says(vocabulary.encode(half)), batches)
        assert found == pytest.approx(metric(half, texts)) and 5 < found < 75
    sizes = {"dim": 32, "num_heads": 2, "num_layers": 1, "max_len": task.max_len}
    real = TransformerConfig(vocab_size=task.vocab_size, **sizes).build()
    assert 0 <= task.score(real, batches[:1]) < 5  # untrained
    with pytest.raises(OptionError, match="counting: score needs at least one"):
        task.score(model, [])


def test_descriptions_of_packages(monkeypatch):
    english = {"Packages": test_readers.PACKAGES, "Translation-en": test_readers.ENGLISH}
    archives = {
        "debian_descriptions": packed(english),
        "debian_descriptions_de": packed({"Translation-de": test_readers.GERMAN}),
    }
    monkeypatch.setattr("regard.lab.tasks.pairs.archive", archives.__getitem__)
    pairs = TranslateDe(min_words=1).pairs()  # of paragraphs, where there are equally many
    assert pairs == [
        Pair("brews tea", "kocht Tee", "tea"),
        Pair("Tea is brewed by this program.", "Dieses Programm kocht Tee.", "tea"),
        Pair("It has: * a pot * a cup", "Es hat: * eine Kanne * eine Tasse", "tea"),
        Pair("brews tea (documentation)", "kocht Tee (Dokumentation)", "tea"),
    ]
    assert TranslateDe().pairs() == pairs[1:3]
    summaries = DebianSummary(min_long=1, min_short=1).pairs()
    assert summaries == [
        Pair("Tea is brewed by this program.\nIt has: * a pot * a cup", "brews tea", "tea"),
        Pair("Tea is explained.", "brews tea (documentation)", "tea"),
    ]
    assert DebianSummary(min_long=3, min_short=3).pairs() == summaries[1:]


def test_bits_of_given_targets_may_be_asked_instead(task, splits):
    bits = replace(task, metric="bits_per_byte")
    assert (task.better, task.baseline) == ("higher", "source copied")
    assert (bits.better, bits.baseline) == ("lower", "token frequencies")
    assert bits.load().sha256 == splits.sha256
    batch = batch_of(task, splits.test, 40)
    sure = Says(logits=F.one_hot(batch["labels"].clamp(min=0), task.vocab_size) * 1e4)
    assert bits.score(sure, [batch]) == 0 and bits.item_scores(sure, [batch]) == [0.0] * 40


class Talk(Dialogue):
    vocab_size: int = 300
    valid_size: int = 10
    test_size: int = 30

    pairs = Counting.pairs


def test_dialogue_counts_bits_for_each_byte_of_the_answer():
    task = Talk()
    splits = task.load()
    batch = batch_of(task, splits.test, 30)
    size = sum(len(pair.target.encode()) + 1 for pair in task.texts(splits.test))
    bits = int((batch["labels"] != IGNORED).sum()) * math.log2(300)
    halves = [task.collate([splits.test[i] for i in rows]) for rows in (range(7), range(7, 30))]
    for given in ([batch], halves):
        assert task.score(Says(vocab_size=300), given) == pytest.approx(bits / size, rel=1e-5)
    targets = torch.cat([splits.train[i]["target"] for i in range(len(splits.train))])
    counts = torch.bincount(targets, minlength=300).double() + 1
    found = task.score(Says(logits=(counts / counts.sum()).log()), [batch])
    assert found == pytest.approx(task.trivial_baseline(splits), rel=1e-5)


class Linked(GreekEnglish):
    vocab_size: int = 300
    valid_size: int = 10
    test_size: int = 20

    def pairs(self) -> list[Pair]:
        pairs = []
        for pair in Counting().pairs():
            words = pair.target.split()
            links = tuple((i, len(words) - 1 - i) for i in range(len(words)))
            pairs.append(Pair(pair.source, " ".join(words[::-1]), pair.group, links))
        return pairs


@pytest.mark.parametrize("reads", ["predicted", "read"])
def test_weights_of_tokens_add_up_over_source_words_and_average_over_target_words(reads):
    """A row is that of the step which predicts the token or, one later, of the step which has just read it."""
    task = Linked(reads=reads)
    batch = dict.fromkeys(("source", "target", "valid", "target_valid")) | {
        "source_word": torch.tensor([[0, 0, 1]]),
        "target_word": torch.tensor([[0, 1, 1, -1]]),
        "links": torch.tensor([[[True, False], [True, True]]]),
    }
    weights = torch.tensor([[[0.3, 0.3, 0.4], [0.2, 0.2, 0.6], [0.5, 0.4, 0.1], [0, 0, 1.0]]])
    weights = weights.roll(int(reads == "read"), 1)
    model = nn.Module()
    model.cross_attention = lambda *args, **named: [torch.ones(1, 2, 4, 3), torch.stack([weights, weights], 1)]  # fmt: skip
    expected = torch.tensor([[[0.6, 0.65], [0.4, 0.35]]])
    assert torch.allclose(task.word_weights(model, batch), expected)
    assert not torch.allclose(replace(task, layer=0).word_weights(model, batch), expected)
    with pytest.raises(OptionError, match=r"layer \(2\) must be one of the decoder's 2"):
        replace(task, layer=2).score(model, [batch])
    found = task.align(model, batch)
    assert found.tolist() == [[[True, True], [False, False]]]
    counts = count_links(found, batch["links"]).sum(1)
    assert task.score(model, [batch]) == error_rate(counts).item() == pytest.approx(1 - 2 * 1 / 5)


def test_the_baseline_is_the_diagonal():
    """Words in reverse: of an odd number the middle one alone is on the diagonal."""
    test = Linked().load().test
    sizes = [len(test[i]["links"]) // 2 for i in range(20)]
    right = sum(size % 2 for size in sizes)
    assert batch_of(Linked(), test, 20)["links"].sum() == sum(sizes)
    assert Linked().trivial_baseline(Linked().load()) == pytest.approx(1 - right / sum(sizes))


def test_models_without_maps_are_refused_with_the_reason():
    task = Linked()
    batch = batch_of(task, task.load().test)
    sizes = {"vocab_size": 300, "dim": 32, "num_heads": 2, "num_layers": 1, "max_len": 64}
    without = TransformerConfig(**sizes, cross_mixer="compressed").build()
    for model, why in ((Says(), "Says has no method cross_att"), (without, "a slot mixes the cha")):
        with pytest.raises(UnsupportedError, match=why):
            task.score(model, [batch])
    assert 0 < task.score(TransformerConfig(**sizes, cross_mixer="linear").build(), [batch]) < 1


def test_verses_are_read_with_their_links(monkeypatch):
    files = {
        "data/sources/SBLGNT.tsv": test_readers.GREEK_WORDS,
        "data/eng/targets/BSB/nt_BSB.tsv": test_readers.TARGET,
        "data/eng/alignments/BSB/SBLGNT-BSB-manual.json": json.dumps(test_readers.RECORDS),
    }
    monkeypatch.setattr("regard.lab.tasks.greek_english.archive", lambda name: packed(files))
    assert GreekEnglish().pairs() == [
        Pair("Βίβλος γενέσεως", "The book of", "40001", ((0, 0), (0, 1), (0, 2), (1, 2))),
        Pair('"Ἀβραὰμ', "Abraham", "40001", ((0, 0),)),
    ]
