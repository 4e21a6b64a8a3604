"""Files of one's own: what each format holds, and how one that is damaged or made to do harm is refused."""

import gzip
import io
import json
import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from regard.core import MissingDataError, PathError, StoredDataError, UnknownNameError
from regard.lab.data.archives import open_archive
from regard.lab.data.images import read_idx
from regard.lab.data.own import OWN, read_saved
from regard.lab.data.received import ALWAYS, check_labels, inside, lines_of, text_of


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
    (tmp_path / "train.en").write_text("one\ntwo\n")
    assert OWN["text_files"].read(tmp_path) == {"train": [("eins", "one"), ("zwei", "two")]}
    assert OWN["text_files"].sizes(tmp_path) == {"train": {"pairs": 2}}


def test_a_text_is_cut_into_nine_tenths_and_twice_a_twentieth(tmp_path):
    text = bytes(range(200))
    (tmp_path / "a").write_bytes(text)
    parts = OWN["text_file"].read(tmp_path / "a")
    assert [len(part) for part in parts.values()] == [180, 10, 10]
    assert b"".join(parts.values()) == text
    assert OWN["text_file"].sizes(tmp_path / "a")["test"] == {"bytes": 10}


def test_saved_data_sets_of_hugging_face(tmp_path):
    import datasets

    features = datasets.Features(
        words=datasets.Value("string"), mood=datasets.ClassLabel(names=["sad", "glad"])
    )
    rows = datasets.Dataset.from_dict({"words": ["no", "yé"], "mood": [0, 1]}, features=features)
    datasets.DatasetDict(train=rows, test=rows).save_to_disk(str(tmp_path / "parts"))
    rows.save_to_disk(str(tmp_path / "whole"))
    found = read_saved(tmp_path / "parts", text="words", label="mood")
    assert list(found) == ["train", "test"]
    assert found["test"].texts == [b"no", "yé".encode()]
    assert found["test"].labels.tolist() == [0, 1] and found["test"].classes == ("sad", "glad")
    assert list(read_saved(tmp_path / "whole", text="words", label="mood")) == ["all"]
    with pytest.raises(UnknownNameError, match="unknown column 'text'"):
        OWN["hugging_face"].read(tmp_path / "whole")


# ---------------------------------------------------------------------- damaged, or made to do harm


def idx(values):
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\0\0\x08\x03\0\0", "says that it has 3 axes, and its head does not hold them"),
        (b"\0\0\x08\xff" + b"\xff" * 1020, "says that it has 255 axes"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "and has 16 bytes"),
        (
            gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12, mtime=0),
            "would unpack from .* more than 100 times",
        ),
        (gzip.compress(idx(np.zeros((3, 4, 4), np.uint8)), mtime=0)[:-3], "cannot be unpacked"),
        (gzip.compress(idx(np.zeros((2, 2, 2), np.uint8)) + bytes(9), mtime=0), "bytes or more"),
        (b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 20, "cannot be unpacked"),
    ],
)
def test_damaged_heads_and_packings_are_named(content, why):
    with pytest.raises(StoredDataError, match=why):
        read_idx(content)


def test_a_packed_file_is_not_unpacked_beyond_what_its_head_says():
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="w") as file:
        file.write(idx(np.zeros((3, 4, 4), np.uint8)))
        for _ in range(64):
            file.write(bytes(2**20))
    tracemalloc.start()
    with pytest.raises(StoredDataError, match="bytes or more"):
        read_idx(bomb.getvalue())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_lines_that_unpack_without_end_are_refused(tmp_path):
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"\n" * (3 * ALWAYS)))
    with pytest.raises(StoredDataError, match=r"line \d+: unpacks to more than 100 times its size"):
        for _ in lines_of(path):
            pass
    path.write_bytes(gzip.compress(b'{"reviewerID": "a"}\n' * 9)[:-9])
    with pytest.raises(StoredDataError, match=r"lines\.gz, line \d+: cannot be unpacked"):
        for _ in lines_of(path):
            pass


@pytest.mark.parametrize("label", [-5, 10, 10**9, 10**30, float("nan"), 1.0, None, "1", True])
def test_labels_are_whole_numbers_below_the_number_of_classes(label):
    with pytest.raises(StoredDataError, match="a set, item 1: label"):
        check_labels("a set", [1, label], 10)


def test_nothing_outside_the_folder_is_read(tmp_path):
    (tmp_path / "secret.txt").write_text("outside")
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in (
        "../secret.txt",
        "a/../../secret.txt",
        str(tmp_path / "secret.txt"),
        "C:\\x",
        "a\0b",
    ):
        with pytest.raises(StoredDataError, match="which is not inside it"):
            inside(folder, name, "a file")
    with pytest.raises(PathError, match="the name is too long"):
        inside(folder, "x" * 5000, "a file")
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(StoredDataError, match=r"link is a link to .*secret\.txt, outside"):
        inside(folder, "link", "a file")
    (folder / "within").symlink_to(folder)
    assert inside(folder, "within", "a file").is_dir()


def test_links_out_of_the_folder_are_refused(tmp_path):
    out, folder = tmp_path / "out", tmp_path / "copy"
    out.write_bytes(b"text\n")
    folder.mkdir()
    for name in ("train.de", "train.en"):
        (folder / name).symlink_to(out)
    refused("text_files", folder, "is a link to .*out, outside")


def test_empty_files_are_refused(tmp_path):
    for name in ("train.de", "train.en"):
        (tmp_path / name).write_text("\n")
    refused("text_files", tmp_path, "hold no pair")
    (tmp_path / "a.csv").write_text("")
    refused("table", tmp_path / "a.csv", "no row|line 1")


def test_wrong_encodings_and_long_cells_are_named_with_their_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\na,b\na\xff,b\n")
    refused("table", path, r"a\.csv, line 3: not UTF-8")
    path.write_bytes(b'text,label\n"' + b"x" * (2**24 + 1) + b'",b\n')
    refused("table", path, "line 2: field larger than field limit")


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    refused("table", tmp_path / "a.csv", "is no regular file")
    with pytest.raises(StoredDataError, match="is no regular file"):
        text_of(tmp_path / "a.csv")


@pytest.mark.parametrize("flag", [1, 0x40])
def test_encrypted_zips_are_refused(tmp_path, flag):
    path = tmp_path / "toy.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "first")
    content = bytearray(path.read_bytes())
    content[6] |= flag  # of the local head
    content[content.index(b"PK\x01\x02") + 8] |= flag
    path.write_bytes(content)
    with pytest.raises(
        StoredDataError, match=r"toy\.zip: a\.txt (is encrypted|cannot be unpacked)"
    ):
        open_archive(path).read("a.txt")


def test_zips_that_inflate_without_end_or_are_damaged_are_refused(tmp_path):
    path = tmp_path / "toy.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(8 * ALWAYS))
        archive.writestr("text", "some text that is long enough to be packed " * 9)
    with pytest.raises(StoredDataError, match=r"toy\.zip: bomb would unpack from"):
        open_archive(path).read("bomb")
    content = bytearray(path.read_bytes())
    place = content.rindex(b"text", 0, content.index(b"PK\x01\x02")) + 8
    content[place : place + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with pytest.raises(StoredDataError, match=r"toy\.zip: text cannot be unpacked"):
        open_archive(path).read("text")


@pytest.mark.parametrize(("label", "why"), [(-1, "label -1"), (10**9, "label 1000000000")])
def test_labels_of_saved_data_sets_are_checked(tmp_path, label, why):
    import datasets

    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, label]})
    rows.save_to_disk(str(tmp_path / "saved"))
    refused("hugging_face", tmp_path / "saved", f"saved, all, item 1: {why}")


def test_records_of_saved_data_sets_stay_inside(tmp_path):
    import datasets

    datasets.Dataset.from_dict({"text": ["a"], "label": [0]}).save_to_disk(str(tmp_path / "saved"))
    state = tmp_path / "saved/state.json"
    said = json.loads(state.read_text())
    said["_data_files"][0]["filename"] = "../elsewhere.arrow"
    state.write_text(json.dumps(said))
    refused("hugging_face", tmp_path / "saved", "which is not inside it")
    state.write_text("[" * 100_000)
    refused("hugging_face", tmp_path / "saved", r"state\.json is no record")
