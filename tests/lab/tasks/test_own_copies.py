"""Tasks on a user's own copy, on files that the tests write; and the Bible in two versions."""

import pickle
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from regard.core import MissingDataError, OptionError, StoredDataError
from regard.lab.data.own import texts
from regard.lab.tasks.images import MNIST, CIFAR10Grey, LRAPathfinder
from regard.lab.tasks.language_models import Enwik8, OwnText, Text8
from regard.lab.tasks.synthetic import LRAListOps
from regard.lab.tasks.tables import OwnTable
from regard.lab.tasks.texts import BibleChapters, IMDb, LabelledTexts, LRARetrieval


def sizes(splits):
    return [len(part) for part in (splits.train, splits.valid, splits.test)]


def test_listops(tmp_path):
    for name in ("train", "val", "test"):
        rows = ["Source\tTarget", "( ( ( [MAX 2 ) 9 ) ] )\t9", "( ( [MIN 4 ) ] )\t4"]
        (tmp_path / f"basic_{name}.tsv").write_text("\n".join(rows) + "\n")
    splits = LRAListOps(path=tmp_path, length=3).load()
    assert sizes(splits) == [2, 2, 2] and splits.test.labels.tolist() == [9, 4]
    assert splits.train.lengths.tolist() == [3, 3]
    whole = LRAListOps(path=tmp_path).load()
    assert whole.train.lengths.tolist() == [4, 3]
    assert whole.train[0]["tokens"][:3].tolist() == splits.train[0]["tokens"].tolist()
    assert whole.train[1]["tokens"].tolist() == splits.train[1]["tokens"].tolist()


def test_imdb(tmp_path):
    for part in ("train", "test"):
        for name in ("pos", "neg"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(10):
                (tmp_path / part / name / f"{i}_7.txt").write_text(f"{name} film {part} {i}")
    splits = IMDb(path=tmp_path, length=8).load()
    assert sizes(splits) == [18, 2, 20] and splits.valid.labels.tolist().count(1) == 1
    for i in range(20):
        text = bytes((splits.test[i]["tokens"] - 1).tolist())
        assert text == (b"pos film" if splits.test[i]["label"] else b"neg film")


def test_cifar(tmp_path):
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        data = rng.integers(0, 256, (20, 3072), dtype=np.uint8)
        (tmp_path / name).write_bytes(
            pickle.dumps({b"data": data, b"labels": list(range(10)) * 2}, protocol=2)
        )
    splits = CIFAR10Grey(path=tmp_path).load()
    assert sizes(splits) == [90, 10, 20] and sorted(splits.valid.labels.tolist()) == list(range(10))
    red, green, blue = data[0].reshape(3, 1024).astype(float)
    grey = (0.2989 * red + 0.587 * green + 0.114 * blue).astype(int)
    assert splits.test[0]["tokens"].tolist() == (grey + 1).tolist()


def test_pathfinder(tmp_path):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "imgs" / "0").mkdir(parents=True)
    lines = []
    for i in range(10):
        Image.fromarray(np.full((4, 4), 20 * i, np.uint8)).save(tmp_path / f"imgs/0/s_{i}.png")
        lines.append(f"imgs/0 s_{i}.png {i} {i % 2} 1.0 14 4 2 0.5 1 1")
    (tmp_path / "metadata" / "0.npy").write_text("\n".join(lines) + "\n")
    splits = LRAPathfinder(path=tmp_path, size=4).load()
    assert sizes(splits) == [8, 1, 1]
    assert splits.test[0]["tokens"].tolist() == [181] * 16 and splits.test[0]["label"] == 1
    with pytest.raises(OptionError, match="size is 32"):
        LRAPathfinder(path=tmp_path).load()


def test_retrieval(tmp_path):
    for name in ("train", "eval", "test"):
        (tmp_path / f"new_aan_pairs.{name}.tsv").write_text(
            "1.0\ta\tb\tone text\ttwo\n0.0\ta\tc\tx\ty\n"
        )
    splits = LRARetrieval(path=tmp_path, length=3).load()
    item = splits.valid[0]
    assert bytes((item["first"] - 1).tolist()) == b"one" and item["label"] == 1
    assert splits.test.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("task", "text"),
    [(Enwik8, b"<mediawiki>" + bytes(range(251)) * 16), (Text8, b"one two zero " * 400)],
)
def test_wikipedia(tmp_path, monkeypatch, task, text):
    monkeypatch.setattr(texts, "WIKIPEDIA_BYTES", 4000)
    text = text[:4000]
    (tmp_path / task.name).write_bytes(text)
    splits = task(path=tmp_path / task.name, length=50, valid_size=2).load()
    assert sizes(splits) == [72, 2, 4]
    asked = splits.test.labels[splits.test.labels >= 0]
    assert sorted(asked.tolist()) == sorted(byte + 1 for byte in text[3800:])


def test_mnist(tmp_path):
    for stem, count in (("train", 100), ("t10k", 10)):
        pixels = np.arange(count * 784).reshape(count, 28, 28).astype(np.uint8)
        for kind, values in (("images-idx3", pixels), ("labels-idx1", np.arange(count) % 10)):
            head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
            content = head + values.astype(np.uint8).tobytes()
            (tmp_path / f"{stem}-{kind}-ubyte").write_bytes(content)
    splits = MNIST(path=tmp_path).load()
    assert sizes(splits) == [90, 10, 10] and splits.test.labels.tolist() == list(range(10))
    assert splits.test[3]["tokens"].tolist() == (pixels[3].ravel().astype(int) + 1).tolist()


class Saved:
    """What `datasets` loads, as far as it is read here: columns by name."""

    features = {"mood": None}
    column_names = ("words", "mood")

    def __init__(self, **columns):
        self.columns = columns

    def __getitem__(self, name):
        return self.columns[name]


@pytest.mark.parametrize("parts", [["all"], ["train", "test"], ["train", "validation", "test"]])
def test_labelled_texts_of_ones_own(tmp_path, monkeypatch, parts):
    saved = {
        part: Saved(
            words=[f"{part[:2]} {i:02} end" for i in range(40)], mood=[i % 2 for i in range(40)]
        )
        for part in parts
    }
    for part in saved.values():
        part["words"][7] = f"{parts[0][:2]} 05 again"  # the same, cut
    found = SimpleNamespace(load_from_disk=lambda path: saved if len(saved) > 1 else saved["all"])
    monkeypatch.setitem(sys.modules, "datasets", found)
    task = LabelledTexts(path=tmp_path, text="words", label="mood", length=5)
    splits = task.load()
    seen = [
        bytes((part[i]["tokens"] - 1).tolist())
        for part in (splits.train, splits.valid, splits.test)
        for i in range(len(part))
    ]
    assert len(set(seen)) == len(seen) > 30
    held = seen[len(splits.train) : len(splits.train) + len(splits.valid)]
    validation = "validation" if "validation" in parts else parts[0]
    assert {text[:2] for text in held} == {validation[:2].encode()}
    assert splits.facts == {"num_classes": 2} and "num_classes" not in task.facts


@pytest.mark.parametrize(
    "task",
    [
        LRAListOps,
        IMDb,
        CIFAR10Grey,
        LRAPathfinder,
        LRARetrieval,
        Enwik8,
        Text8,
        MNIST,
        LabelledTexts,
        OwnText,
        OwnTable,
    ],
)
def test_no_path_and_a_wrong_one_are_refused(task, tmp_path):
    with pytest.raises(OptionError, match=f"{task.name}: path must name your copy"):
        task().load()
    with pytest.raises((MissingDataError, StoredDataError)):
        task(path=tmp_path).load()


def test_bible_chapters_stay_in_one_part_and_negatives_in_their_book():
    first = {(book, n): f"old {book} {n}" for book in (1, 2) for n in range(1, 60)}
    second = {(book, n): f"new {book} {n}" for book in (1, 2) for n in range(1, 60)}
    second[2, 7] = " ".join(second[2, 6].split()) + " "  # a repetition
    splits = BibleChapters().of(first, second)
    seen = []
    for part in (splits.train, splits.valid, splits.test):
        assert part.labels.double().mean() == 0.5
        chapters = set()
        for item in (part[i] for i in range(len(part))):
            a, b = (bytes((item[name] - 1).tolist()).split()[1:] for name in ("first", "second"))
            assert a[0] == b[0] and (a == b) == bool(item["label"])
            chapters |= {tuple(a), tuple(b)}
        seen.append(chapters)
    assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])
    assert (b"2", b"7") not in set().union(*seen)
