"""A user's own files, a CSV of labelled texts, a text file, a folder of pairs, a table: the formats and the tasks; damaged ones are refused."""

import math
import os

import numpy as np
import pytest
import torch

from regard.core import MissingDataError, OptionError, StoredDataError, UnknownNameError
from regard.lab.data.own import OWN, read_parallel
from regard.lab.data.pairs import Pair
from regard.lab.tasks import LabelledTexts, OwnTable, OwnText, TextFiles
from regard.lab.tasks.task import padded


@pytest.mark.parametrize("name", OWN.names())
def test_a_path_that_is_not_there_is_described(name, tmp_path):
    with pytest.raises(MissingDataError, match=r"there is no .*nowhere.* Expected: "):
        OWN[name].read(tmp_path / "nowhere")


def test_two_files_are_read_line_by_line(tmp_path):
    form, one, two = OWN["text_files"], tmp_path / "train.en", tmp_path / "train.de"
    one.write_text("A house .\n\nIt  rains\u2028today .\n", encoding="utf-8")
    with pytest.raises(StoredDataError, match=r"has 1 files train\.\*\. Expected: a folder"):
        form.read(tmp_path)
    two.write_text("Ein Haus .\r\nleer\r\nEs regnet .\r\n", encoding="utf-8")
    pairs = [("Ein Haus .", "A house ."), ("Es regnet .", "It rains today .")]
    assert form.read(tmp_path) == {"train": [Pair(a, b, a) for a, b in pairs]}
    assert form.sizes(tmp_path) == {"train": {"pairs": 2}}
    for name in ("valid.de", "valid.en", "test.german", "test.english"):
        (tmp_path / name).write_text("A .\n")
    with pytest.raises(StoredDataError, match=r"test\.english and \.german beside train\.de and"):
        form.read(tmp_path)


def test_files_that_are_not_parallel_are_refused(tmp_path):
    one, two = tmp_path / "a", tmp_path / "b"
    one.write_text("1\n2\n3\n")
    with pytest.raises(MissingDataError, match=r"there is no .*b\. Expected: a text file"):
        read_parallel(one, two)
    unlike = {b"1\n2\n": r"a has 3 lines, and .*b 2", b"\n\n\n": "hold no pair"}
    for content, why in (unlike | {b"\xff\n2\n3\n": r"b, line 1: not UTF-8"}).items():
        two.write_bytes(content)
        with pytest.raises(StoredDataError, match=why):
            read_parallel(one, two)


@pytest.mark.parametrize(("content", "why"), [
    (b"", "no row|line 1"),
    (b"text,label\na,b\na\xff,b\n", r"a\.csv, line 3: not UTF-8"),
    (b'text,label\n"' + b"x" * (2**24 + 1) + b'",b\n', "line 2: field larger than field limit"),
    (b"text,label\na,b\nc\n", "line 3: 1 cells under 2 columns"),
    (b"text,text\na,b\n", "line 1: the columns need a name each"),
    (b"text,label\n", "it holds no row"),
    (b'text,label\na,b\nc,"d\ne,f\ng,h\n', "line 3: unexpected end of data"),
    (None, "is no regular file"),
])  # fmt: skip
def test_a_table_that_is_none_is_refused_with_its_line(tmp_path, content, why):
    path = tmp_path / "a.csv"
    os.mkfifo(path) if content is None else path.write_bytes(content)
    with pytest.raises(StoredDataError, match=why):
        OWN["table"].read(path)


def sizes(splits):
    return [len(part) for part in (splits.train, splits.valid, splits.test)]


def test_a_csv_of_labelled_texts(tmp_path):
    path, tabs = tmp_path / "reviews.csv", tmp_path / "reviews.TSV"
    rows = [f'"{i}, a ""review""",{("good", "bad", "odd")[i % 3]}' for i in range(60)]
    path.write_text("\n".join(["words,mood", *rows]) + "\n")
    splits = LabelledTexts(path=path, text="words", label="mood", length=20).load()
    assert splits.facts == {"num_classes": 3} and sizes(splits) == [48, 6, 6]
    assert splits.notes == {"0": "bad", "1": "good", "2": "odd"}
    for item in (splits.train[i] for i in range(48)):
        text = bytes((item["tokens"] - 1).tolist()).decode()
        number = int(text.partition(",")[0])
        assert text == f'{number}, a "review"'[:20] and item["label"] == (1, 0, 2)[number % 3]
    tokens, valid = padded([torch.zeros(0).long()] * 2)  # a batch of empty texts
    assert tokens.shape == (2, 1) and not valid.any()
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
    path.write_text("text,label\na,b\nc,b\nd,\n")
    with pytest.raises(StoredDataError, match="one class only"):
        LabelledTexts(path=path).load()
    path.write_text("text,label\na,b\nc,d\ne,f\n")
    with pytest.raises(OptionError, match="nothing is left for validation and test: the data are"):
        LabelledTexts(path=path).load()


@pytest.mark.parametrize("task", [LabelledTexts, OwnText, OwnTable, TextFiles])
def test_no_path_and_a_wrong_one_are_refused(task, tmp_path):
    with pytest.raises(OptionError, match=f"{task.name}: path must name your own"):
        task().load()
    with pytest.raises(StoredDataError):
        task(path=tmp_path).load()


def test_a_text_file(tmp_path):
    path, text = tmp_path / "novel.txt", bytes(range(256)) * 40
    path.write_bytes(text)
    splits = OwnText(path=path, length=64, valid_size=4, test_size=4).load()
    assert sizes(splits) == [math.ceil(len(text) * 0.9 / 64), 4, 4]
    windows = {tuple(splits.train[i]["tokens"].tolist()) for i in range(len(splits.train))}
    assert (257, *range(1, 64)) in windows  # the start, and the first 63 bytes


def test_a_folder_of_pairs(tmp_path):
    lines = [f"line {i} of it" for i in range(200)]

    def write(part, rows):
        for side, text in (("a", "\n".join(rows)), ("b", "\n".join(rows).upper())):
            (tmp_path / f"{part}.{side}").write_text(text)

    write("train", lines)
    task = TextFiles(path=tmp_path, vocab_size=300)
    splits = task.load()
    assert 120 < len(splits.train) < 190
    assert all(pair.target == pair.source.upper() for pair in task.texts(splits.test))
    write("valid", lines[:20])
    with pytest.raises(StoredDataError, match=r"needs both valid\.\* and test\.\*"):
        TextFiles(path=tmp_path, vocab_size=301).load()
    write("test", lines[20:40])
    assert len(TextFiles(path=tmp_path, vocab_size=302).load().train) == 160


def test_a_table(tmp_path):
    path, ages = tmp_path / "customers.csv", np.random.default_rng(0).integers(18, 80, 400)
    answers = ["" if i % 40 == 1 else "yes" if age > 50 else "no" for i, age in enumerate(ages)]
    rows = [f"{age if i % 50 else ''},{('Rome', 'Oslo', '')[i % 3]},{answers[i]}" for i, age in enumerate(ages)]  # fmt: skip
    path.write_text("\n".join(["age,city,bought", *rows]))
    task = OwnTable(path=path, target="bought")
    splits = task.load()
    assert sizes(splits) == [273, 58, 59]
    kinds = {field.name: type(field).__name__ for field in splits.schema.fields}
    assert kinds == {"age": "Numeric", "city": "Categorical"}
    assert task.trivial_baseline(splits) > 0.95  # age is never the wrong way round
    swapped = OwnTable(path=path, target="bought", positive="no").load()
    assert (swapped.train.labels == 1 - splits.train.labels).all()
    with pytest.raises(UnknownNameError, match=r"unknown column 'bougth'\. Did you mean"):
        OwnTable(path=path, target="bougth").load()
    with pytest.raises(OptionError, match=r"'age' has \d+ answers"):
        OwnTable(path=path, target="age").load()


def test_a_table_whose_parts_have_one_answer_is_refused_before_training(tmp_path):
    path = tmp_path / "rare.csv"
    rows = [f"{i},10_{i % 9},{int(i == 7)}" for i in range(100)]
    path.write_text("\n".join(["number,code,target", *rows]))
    with pytest.raises(OptionError, match="'1' is the answer of 1 of 100 rows, so that a part"):
        OwnTable(path=path).load()
    path.write_text(path.read_text().replace(",0\n", ",1\n", 60))
    numbers, codes = OwnTable(path=path).load().facts["fields"]
    assert (type(numbers).__name__, type(codes).__name__) == ("Numeric", "Categorical")
