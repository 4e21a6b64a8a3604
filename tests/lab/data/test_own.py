"""Files of one's own: what each format holds, and how one that is damaged is refused."""

import os

import pytest

from regard.core import MissingDataError, StoredDataError
from regard.lab.data.own import OWN, read_parallel


def refused(form, path, why):
    with pytest.raises(StoredDataError, match=why):
        OWN[form].read(path)


@pytest.mark.parametrize("name", OWN.names())
def test_a_path_that_is_not_there_is_described(name, tmp_path):
    with pytest.raises(MissingDataError, match=r"there is no .*nowhere.* Expected: "):
        OWN[name].read(tmp_path / "nowhere")


def test_two_files_of_sentences_are_counted(tmp_path):
    (tmp_path / "train.de").write_text("eins\nzwei\n")
    refused("text_files", tmp_path, r"has 1 files train\.\*\. Expected: a folder")
    (tmp_path / "train.en").write_text("one\ntwo")
    assert OWN["text_files"].read(tmp_path) == {"train": [("eins", "one"), ("zwei", "two")]}
    assert OWN["text_files"].sizes(tmp_path) == {"train": {"pairs": 2}}


def test_two_files_are_read_line_by_line(tmp_path):
    one, two = tmp_path / "news.en", tmp_path / "news.de"
    one.write_text("A house .\n\nIt  rains\u2028today .\n", encoding="utf-8")
    two.write_text("Ein Haus .\r\nleer\r\nEs regnet .\r\n", encoding="utf-8")
    assert read_parallel(one, two) == [
        ("A house .", "Ein Haus ."),
        ("It rains today .", "Es regnet ."),
    ]


def test_files_that_are_not_parallel_are_refused(tmp_path):
    one, two = tmp_path / "a", tmp_path / "b"
    one.write_text("1\n2\n3\n")
    with pytest.raises(MissingDataError, match=r"there is no .*b\. Expected: a text file"):
        read_parallel(one, two)
    for content, why in (
        (b"1\n2\n", r"a has 3 lines, and .*b 2"),
        (b"\xff\n2\n3\n", r"b, line 1: not UTF-8"),
        (b"\n\n\n", "hold no pair"),
    ):
        two.write_bytes(content)
        with pytest.raises(StoredDataError, match=why):
            read_parallel(one, two)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no row|line 1"),
        (b"text,label\na,b\na\xff,b\n", r"a\.csv, line 3: not UTF-8"),
        (b'text,label\n"' + b"x" * (2**24 + 1) + b'",b\n', "line 2: field larger than field limit"),
        (b"text,label\na,b\nc\n", "line 3: 1 cells under 2 columns"),
        (b"text,text\na,b\n", "line 1: the columns need a name each"),
        (b"text,label\n", "it holds no row"),
    ],
)
def test_a_table_that_is_none_is_refused_with_its_line(tmp_path, content, why):
    (tmp_path / "a.csv").write_bytes(content)
    refused("table", tmp_path / "a.csv", why)


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    refused("table", tmp_path / "a.csv", "is no regular file")
