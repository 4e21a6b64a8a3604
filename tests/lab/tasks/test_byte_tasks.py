"""Tasks on real data, on a few rows written here: no download is needed; bytes in drawn orders."""

import gzip
import math
import struct
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from regard.core import StoredDataError
from regard.lab.data.debian import Document
from regard.lab.data.splits import stratified
from regard.lab.data.windows import MASK, START, Windows
from regard.lab.tasks import IGNORED, StdlibPermuted, texts as module
from regard.lab.tasks.images import FashionMNIST
from regard.lab.tasks.language_models import Draws
from regard.lab.tasks.masked import MaskedLanguageModelling, SpamMasked
from regard.lab.tasks.texts import BibleChapters, DebianSections, Email, Spam
from regard.lab.train.batches import in_order
from tests.lab.experiment.tiny import few_modules


def parts(splits):
    return [[part[i] for i in range(len(part))] for part in (splits.train, splits.valid, splits.test)]  # fmt: skip


def texts_in(items):
    """The bytes of the items; starts and masks are no bytes."""
    tokens = (item["tokens"] for item in items)
    return [bytes((one[one < START] - 1).tolist()) for one in tokens]


def once_in_all(splits):
    items = [item for part in parts(splits) for item in part]
    seen = {tuple(x.numpy().tobytes() for n, x in item.items() if n != "label") for item in items}
    return len(seen) == len(items)


HAM = [Email("easy-ham-1", b"#%d: lunch at noon?" % i) for i in range(60)]
SPAM = [Email("spam-2", b"BUY NOW %d" % i) for i in range(30)]
AGAIN = [Email("spam-1", b"  BUY   NOW 3\n"), Email("spam-1", b" \n")]
EMAILS = [*HAM, *SPAM, *AGAIN, Email("hard-ham-1", b"hard ham")]


def test_a_body_begins_after_the_first_empty_line_and_keeps_its_bytes():
    for email, body in {
        b"Subject: x\nTo: y\n\nfirst\n\nsecond \xff\n": b"first\n\nsecond \xff\n",
        b"Subject: x\r\n\r\nfirst\r\n": b"first\r\n",
        b"Subject: only a head\n": b"",
    }.items():
        assert module.read_emails({"package/data/ham/1.txt": email}) == [Email("ham", body)]


@pytest.fixture
def read(monkeypatch):
    """Sets what the reader of this name finds in each source."""
    monkeypatch.setattr(module, "archive", str)
    return lambda name, find: monkeypatch.setattr(module, name, find)


def test_spam_is_balanced_and_unique(read):
    read("read_emails", lambda _: EMAILS)
    task = Spam(length=17)
    splits = task.load()
    found = parts(splits)
    assert [len(part) for part in found] == [48, 6, 6]
    assert [sum(int(item["label"]) for item in part) for part in found] == [24, 3, 3]
    assert max(len(text) for part in found for text in texts_in(part)) == 17
    assert task.trivial_baseline(splits) == pytest.approx(1 / 3)
    every = [text for part in parts(Spam().load()) for text in texts_in(part)]
    assert len(set(every)) == 60 and b"hard ham" not in every and b"BUY NOW 3" in every
    short = Spam(length=9).load()  # b"BUY NOW 1" begins eleven bodies
    assert once_in_all(short) and [len(part) for part in parts(short)] == [16, 2, 2]


def test_bodies_are_in_the_same_parts_for_masking(read):
    long = [email._replace(body=email.body * 9) for email in EMAILS]  # each fills a window
    read("read_emails", lambda _: long)
    masked = SpamMasked(length=40).load()
    trained = b"|".join(texts_in(parts(masked)[0]))
    for length in (9, 18):
        train, *held = map(texts_in, parts(Spam(length=length).load()))
        assert all(body in trained for body in train) and all(held)
        assert not any(body in trained for part in held for body in part)
    assert b"hard ham" not in trained


def test_stratified_parts_share_every_class():
    labels = np.array([0] * 100 + [1] * 50 + [2] * 10)
    found = stratified(labels, 0.1, 0.2, seed=3)
    assert sorted(np.concatenate(found).tolist()) == list(range(160))
    for part, sizes in zip(found, ([70, 35, 7], [10, 5, 1], [20, 10, 2]), strict=True):
        assert np.bincount(labels[part]).tolist() == sizes
    assert not np.array_equal(found[0], stratified(labels, 0.1, 0.2, seed=4)[0])


def idx(values):
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return gzip.compress(head + values.astype(np.uint8).tobytes())


def test_fashion_pixels_are_tokens(monkeypatch):
    pixels = np.arange(40 * 784).reshape(40, 28, 28) % 256
    kinds = {"images-idx3": idx(pixels), "labels-idx1": idx(np.arange(40) % 10)}
    named = product(("train", "t10k"), kinds)
    folder = "usr/share/datasets/fashion-mnist"
    files = {f"{folder}/{stem}-{kind}-ubyte.gz": kinds[kind] for stem, kind in named}
    task = FashionMNIST(valid_size=10)
    monkeypatch.setattr("regard.lab.tasks.images.archive", {"fashion_mnist": files}.__getitem__)
    splits = task.load()
    assert [len(part) for part in parts(splits)] == [30, 10, 40]
    item = splits.test[3]
    assert item["tokens"].tolist() == (pixels[3].ravel() + 1).tolist() and item["label"] == 3
    assert torch.bincount(splits.valid.labels).tolist() == [1] * 10


def document(i):
    first, second = f"Rogue x{i // 11} y{i % 11}.", f"It is played; word{i} often."
    section = ("games", "net")[i // 2 % 2]
    return Document(f"src{i // 2}", section, (first, second, "?", "", "Cut me away."))


DOCUMENTS = [document(i) for i in range(120)]


def test_debian_documents_are_sentences_of_words(read):
    read("read_documents", lambda _: DOCUMENTS)
    task = DebianSections(vocab_size=32, max_sentences=4, max_words=5)
    splits = task.load()
    sizes = [len(part) for part in parts(splits)]
    assert sum(sizes) == 120 and all(size > 0 and size % 2 == 0 for size in sizes)  # whole sources
    batch = task.collate([splits.train[0], splits.train[1]])
    assert batch["tokens"].shape == batch["valid"].shape == (2, 3, 5)
    assert batch["valid"].sum(-1).tolist() == [[4, 5, 1], [4, 5, 1]]  # the empty sentence is none
    assert task.count(batch) == 20 and splits.train.lengths[0] == 10
    assert (batch["tokens"][~batch["valid"]] == 0).all()
    assert batch["tokens"].max() < 32 and module.UNKNOWN in batch["tokens"]
    assert splits.notes["sections"] == "games net"
    odd = DOCUMENTS[0]._replace(sentences=["C++ don't, (x86-64)!"])
    assert DebianSections()._cut(odd) == [["c++", "don't", ",", "(", "x86-64", ")", "!"]]
    many = [doc._replace(section=f"s{i % 30}") for i, doc in enumerate(DOCUMENTS)]
    read("read_documents", lambda _: many)
    with pytest.raises(StoredDataError, match="30 sections"):
        task.load()
    other = ((f"other{i}", (doc.sentences[0], "Else.")) for i, doc in enumerate(DOCUMENTS))
    again = [d._replace(source=s, sentences=t) for d, (s, t) in zip(DOCUMENTS, other, strict=True)]
    read("read_documents", lambda _: [*DOCUMENTS, *again])
    sections = DebianSections(vocab_size=40, max_sentences=1).load()
    assert once_in_all(sections) and sum(map(len, parts(sections))) == 120


def test_bible_chapters_stay_in_one_part_and_negatives_in_their_book(read):
    first, second = ({(book, n): f"{word} {book} {n}" for book in (1, 2) for n in range(1, 60)} for word in ("old", "new"))  # fmt: skip
    second[2, 7] = " ".join(second[2, 6].split()) + " "  # a repetition
    read("read_chapters", {"bible_kjv": first, "bible_bbe": second}.__getitem__)
    splits, seen = BibleChapters().load(), []
    for part in parts(splits):
        assert np.mean([float(item["label"]) for item in part]) == 0.5
        chapters = set()
        for item in part:
            a, b = (bytes((item[name] - 1).tolist()).split()[1:] for name in ("first", "second"))
            assert a[0] == b[0] and (a == b) == bool(item["label"])
            chapters |= {tuple(a), tuple(b)}
        seen.append(chapters)
    assert len(set.union(*seen)) == sum(map(len, seen)) and (b"2", b"7") not in set.union(*seen)


class MaskedWorks(MaskedLanguageModelling):
    name = "masked_works"

    def texts(self, rng):
        texts = [f"the work {name} speaks. ".encode() * 20 for name in "abcdefgh"]
        return texts[:6], texts[6:7], texts[7:]


class Watches(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(259))
        self.seen = []

    def forward(self, tokens, *, valid=None):
        self.seen.append(tokens)
        return self.logits.expand(*tokens.shape, -1)


def test_masked_bytes_are_hidden_anew_in_training_and_fixed_in_evaluation():
    task, model = MaskedWorks(length=64, rate=0.3), Watches()
    splits = task.load()
    assert splits.sha256 == task.load().sha256
    batch = task.collate([splits.train[i] for i in range(8)])
    torch.manual_seed(0)
    loss = task.loss(model, batch)
    task.loss(model, batch)
    torch.manual_seed(0)
    task.loss(model, batch)
    first, second, third = model.seen
    assert float(loss.detach()) == pytest.approx(math.log(259), rel=1e-5)
    assert torch.equal(first, third) and not torch.equal(first, second)
    assert (first == MASK).double().mean() == pytest.approx(0.3 * 0.8, abs=0.06)
    assert not ((first != batch["tokens"]) & (batch["tokens"] == START)).any()

    short = batch | {"valid": torch.arange(64).expand_as(batch["tokens"]) < 40}
    task.loss(model, short)
    assert torch.equal(model.seen[-1][:, 40:], batch["tokens"][:, 40:])  # padding is not hidden

    fixed = task.collate([splits.test[i] for i in range(4)])
    hidden = fixed["labels"] != IGNORED
    assert (fixed["tokens"] == MASK).any() and (hidden | (fixed["tokens"] != MASK)).all()
    assert task.score(model, [fixed]) == pytest.approx(math.log2(259), rel=1e-5)
    assert torch.equal(model.seen[-1], fixed["tokens"])

    whole = MaskedWorks(length=64, rate=1.0, test_size=10**6)
    *_, texts = whole.texts(np.random.default_rng(whole.seed))
    labels = whole.load().test.labels
    assert (labels != IGNORED).sum() in (size := sum(map(len, texts)), size - 1)  # each byte once


def test_one_token_in_k_is_asked_in_an_order_of_its_own():
    tokens = np.random.default_rng(0).integers(1, 9, (4000, 12))
    tokens[tokens == 8] = START
    draw = Draws(np.random.default_rng(1), torch.Generator())
    again = np.zeros_like(tokens, dtype=bool)
    again[-100:, :4] = True
    rows = StdlibPermuted(length=12, k=3).rows(Windows(tokens, tokens, again), True, draw)
    order, labels = (rows.columns[name].values.reshape(-1, 12) for name in ("order", "label"))
    context = (tokens == START) | again
    asked, spared = order >= 0, context.sum(1)
    assert np.array_equal(labels[asked], tokens[asked]) and (labels[~asked] == IGNORED).all()
    assert not asked[context].any() and (asked.sum(1) == np.minimum(4, 12 - spared)).all()
    assert (np.sort(order[spared <= 8], axis=1)[:, -4:] == np.arange(4)).all()
    for found, share in ((asked, 1 / 3), (order == 0, 1 / 12)):  # evenly over the places
        assert np.abs(found[spared == 0].mean(0) - share).max() < 0.06


class Even(nn.Module):
    """Every byte is as likely as any."""

    def forward(self, tokens, *, order, valid=None):
        assert order.shape == tokens.shape and (order < 10).all()
        return torch.zeros(*tokens.shape, 256)


def test_score_is_bits_of_the_asked_bytes(monkeypatch):
    few_modules(monkeypatch)
    task = StdlibPermuted(length=60, valid_size=20, test_size=6)
    splits, model = task.load(), Even()
    batches = list(in_order(splits.test, 4, task.collate))
    assert task.score(model, batches) == pytest.approx(8, abs=1e-5)
    assert task.item_scores(model, batches) == pytest.approx([8.0] * 6, abs=1e-5)
    assert 2 < task.trivial_baseline(splits) < 6
    tokens, order = (splits.train.columns[name].values for name in ("tokens", "order"))
    assert (order[tokens == START] == -1).all() and splits.train.lengths.unique().tolist() == [60]
    assert task.count(batches[0]) == 4 * 60
    assert float(task.loss(model, batches[0])) == pytest.approx(math.log(256))
