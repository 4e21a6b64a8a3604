"""Tasks on a user's own files: a CSV of labelled texts, a text file, a folder of pairs, a table."""

import math

import numpy as np
import pytest

from regard.core import OptionError, StoredDataError, UnknownNameError
from regard.lab.tasks import LabelledTexts, OwnTable, OwnText, TextFiles


def test_a_csv_of_labelled_texts(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = [f'"{i}, a ""review""",{("good", "bad", "odd")[i % 3]}' for i in range(60)]
    path.write_text("\n".join(["words,mood", *rows]) + "\n")
    task = LabelledTexts(path=path, text="words", label="mood", length=20)
    splits = task.load()
    assert splits.facts == {"num_classes": 3}
    assert splits.notes == {"0": "bad", "1": "good", "2": "odd"}
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [48, 6, 6]
    for part in (splits.train, splits.test):
        for item in (part[i] for i in range(len(part))):
            text = bytes((item["tokens"] - 1).tolist()).decode()
            number = int(text.partition(",")[0])
            assert text == f'{number}, a "review"'[:20]
            assert item["label"] == (1, 0, 2)[number % 3]
    assert task.trivial_baseline(splits) == pytest.approx(1 / 3)
    tabs = tmp_path / "reviews.tsv"
    tabs.write_text("text\tlabel\n" + "".join(f"a{i}, b\t{i % 2}\n" for i in range(40)))
    assert LabelledTexts(path=tabs).load().facts == {"num_classes": 2}
    with pytest.raises(UnknownNameError, match="unknown column 'text'"):
        LabelledTexts(path=path, label="mood").load()


def test_texts_that_are_equal_where_they_are_read_stand_once(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"{i % 40:02} end {i},{i % 2}\n" for i in range(60)))
    splits = LabelledTexts(path=path, length=5).load()
    parts = (splits.train, splits.valid, splits.test)
    seen = [bytes((part[i]["tokens"] - 1).tolist()) for part in parts for i in range(len(part))]
    assert len(set(seen)) == len(seen) == 40
    path.write_text("text,label\na,b\nc,b\n")
    with pytest.raises(StoredDataError, match="one class only"):
        LabelledTexts(path=path).load()


@pytest.mark.parametrize("task", [LabelledTexts, OwnText, OwnTable, TextFiles])
def test_no_path_and_a_wrong_one_are_refused(task, tmp_path):
    with pytest.raises(OptionError, match=f"{task.name}: path must name your own"):
        task().load()
    with pytest.raises(StoredDataError):
        task(path=tmp_path).load()


def test_a_text_file(tmp_path):
    text = bytes(range(256)) * 40
    (tmp_path / "novel.txt").write_bytes(text)
    splits = OwnText(path=tmp_path / "novel.txt", length=64, valid_size=4, test_size=4).load()
    assert len(splits.train) == math.ceil(len(text) * 0.9 / 64)
    assert len(splits.valid) == len(splits.test) == 4
    windows = {tuple(splits.train[i]["tokens"].tolist()) for i in range(len(splits.train))}
    assert (257, *range(1, 64)) in windows  # the start, and the first 63 bytes
    with pytest.raises(OptionError, match="length"):
        OwnText(path=tmp_path / "novel.txt", length=600).load()


def test_a_folder_of_pairs(tmp_path):
    lines = [f"line {i} of it" for i in range(200)]
    (tmp_path / "train.a").write_text("\n".join(lines))
    (tmp_path / "train.b").write_text("\n".join(line.upper() for line in lines))
    task = TextFiles(path=tmp_path, vocab_size=300)
    splits = task.load()
    assert 120 < len(splits.train) < 190
    assert all(pair.target == pair.source.upper() for pair in task.texts(splits.test))
    for part, first in (("valid", 0), ("test", 20)):
        (tmp_path / f"{part}.a").write_text("\n".join(lines[first : first + 20]))
        (tmp_path / f"{part}.b").write_text("\n".join(lines[first : first + 20]))
        if part == "valid":
            with pytest.raises(StoredDataError, match=r"needs both valid\.\* and test\.\*"):
                TextFiles(path=tmp_path, vocab_size=301).load()
    assert len(TextFiles(path=tmp_path, vocab_size=302).load().train) == 160


def test_a_table(tmp_path):
    rng = np.random.default_rng(0)
    rows = ["age,city,bought"]
    for i in range(400):
        age, city = rng.integers(18, 80), ("Rome", "Oslo", "")[i % 3]
        answer = "yes" if age > 50 else "no"
        rows.append(f"{'' if i % 50 == 0 else age},{city},{'' if i % 40 == 1 else answer}")
    path = tmp_path / "customers.csv"
    path.write_text("\n".join(rows))
    task = OwnTable(path=path, target="bought")
    splits = task.load()
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [273, 58, 59]
    kinds = {field.name: type(field).__name__ for field in splits.schema.fields}
    assert kinds == {"age": "Numeric", "city": "Categorical"}
    assert task.trivial_baseline(splits) > 0.95  # age is never the wrong way round
    swapped = OwnTable(path=path, target="bought", positive="no").load()
    assert (swapped.train.labels == 1 - splits.train.labels).all()
    with pytest.raises(UnknownNameError, match=r"unknown column 'bougth'\. Did you mean"):
        OwnTable(path=path, target="bougth").load()
    with pytest.raises(OptionError, match=r"'age' has \d+ answers"):
        OwnTable(path=path, target="age").load()
