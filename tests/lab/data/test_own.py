"""Files of one's own: what each format holds, and how one that is damaged is refused."""

import os

import pytest

from regard.core import MissingDataError, StoredDataError
from regard.lab.data.own import OWN, read_parallel


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
    assert form.read(tmp_path) == {"train": pairs}
    assert form.sizes(tmp_path) == {"train": {"pairs": 2}}


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


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no row|line 1"),
        (b"text,label\na,b\na\xff,b\n", r"a\.csv, line 3: not UTF-8"),
        (b'text,label\n"' + b"x" * (2**24 + 1) + b'",b\n', "line 2: field larger than field limit"),
        (b"text,label\na,b\nc\n", "line 3: 1 cells under 2 columns"),
        (b"text,text\na,b\n", "line 1: the columns need a name each"),
        (b"text,label\n", "it holds no row"),
        (b'text,label\na,b\nc,"d\ne,f\ng,h\n', "line 3: unexpected end of data"),
        (None, "is no regular file"),
    ],
)
def test_a_table_that_is_none_is_refused_with_its_line(tmp_path, content, why):
    path = tmp_path / "a.csv"
    os.mkfifo(path) if content is None else path.write_bytes(content)
    with pytest.raises(StoredDataError, match=why):
        OWN["table"].read(path)
