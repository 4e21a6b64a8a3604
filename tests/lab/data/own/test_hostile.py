"""Copies that are damaged, or made to do harm: our error, with the file and the line, and nothing outside the folder is read."""

import gzip
import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from regard.core import PathError, StoredDataError
from regard.lab.data.archives import open_archive
from regard.lab.data.own import OWN
from regard.lab.data.own.tables import read_amazon
from regard.lab.data.received import ALWAYS, inside, lines_of
from tests.lab.data.own.test_formats import batch, listops


def refused(form, path, why):
    with pytest.raises(StoredDataError, match=why):
        OWN[form].read(path)


def idx(values):
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def mnist(folder, pixels=None, labels=None):
    pixels = np.zeros((3, 4, 4), np.uint8) if pixels is None else pixels
    labels = np.arange(3, dtype=np.uint8) if labels is None else labels
    for stem in ("train", "t10k"):
        (folder / f"{stem}-images-idx3-ubyte").write_bytes(idx(pixels))
        (folder / f"{stem}-labels-idx1-ubyte").write_bytes(idx(labels))
    return folder


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"labels": np.array([0, 1, 200], np.uint8)},
            r"labels-idx1-ubyte, item 2: label 200 is not",
        ),
        (
            {"pixels": np.zeros((0, 4, 4), np.uint8), "labels": np.zeros(0, np.uint8)},
            "labels-idx1-ubyte is empty",
        ),
    ],
)
def test_labels_of_mnist_are_digits_and_there_are_some(tmp_path, change, why):
    refused("mnist", mnist(tmp_path, **change), why)


def test_pixels_that_are_no_bytes_are_refused(tmp_path):
    mnist(tmp_path)
    values = np.full((3, 4, 4), np.nan, ">f4")
    head = struct.pack(">HBB3I", 0, 0x0D, 3, 3, 4, 4)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(head + values.tobytes())
    refused("mnist", tmp_path, "train-images-idx3-ubyte holds float32, where bytes")


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
def test_damaged_heads_and_packings_are_named(tmp_path, content, why):
    mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    refused("mnist", tmp_path, why)


def test_a_packed_file_is_not_unpacked_beyond_what_its_head_says(tmp_path):
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="w") as file:
        file.write(idx(np.zeros((3, 4, 4), np.uint8)))
        for _ in range(64):
            file.write(bytes(2**20))
    mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(bomb.getvalue())
    import tracemalloc

    tracemalloc.start()
    refused("mnist", tmp_path, "bytes or more")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_lines_that_unpack_without_end_are_refused(tmp_path):
    path = tmp_path / "reviews_x.json.gz"
    path.write_bytes(gzip.compress(b"\n" * (3 * ALWAYS)))
    with pytest.raises(StoredDataError, match=r"line \d+: unpacks to more than 100 times its size"):
        for _ in lines_of(path):
            pass
    path.write_bytes(gzip.compress(b'{"reviewerID": "a"}\n' * 9)[:-9])
    with pytest.raises(StoredDataError, match=r"reviews_x\.json\.gz, line \d+: cannot be unpacked"):
        for _ in lines_of(path):
            pass


def cifar(folder, content):
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(content)
    return folder


PIXELS = np.zeros((2, 32, 32, 3), np.uint8)


@pytest.mark.parametrize("label", [-5, 10, 10**9, 10**30, float("nan"), 1.0, None, "1", True])
def test_labels_of_cifar_are_whole_numbers_below_ten(tmp_path, label):
    refused("cifar10", cifar(tmp_path, batch(PIXELS, [1, label])), "data_batch_1, item 1: label")


def stored(value):
    return pickle.dumps({b"data": value, b"labels": [0]}, protocol=2)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (stored(np.zeros((1, 3072), np.float32)), "not of bytes"),
        (stored(np.zeros((1, 3071), np.uint8)), "has 3071 numbers for a picture"),
        (stored([0]), "no pictures in bytes"),
        (pickle.dumps({b"data": 1}, protocol=2), "no pictures in bytes"),
        (pickle.dumps([1], protocol=2), "holds no dict"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", "no batch of CIFAR-10"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "stores value 2147483647 after 2 instructions"),
        (b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.", "it asks for os.system"),
        (b"\x80\x02cnumpy\nndarray\n(K\x01tR.", "no batch of CIFAR-10|holds no dict"),
    ],
)
def test_a_batch_of_something_else_is_refused(tmp_path, content, why):
    refused("cifar10", cifar(tmp_path, content), why)


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


@pytest.mark.parametrize("line", ["../out x.png 0 1", "/etc passwd 0 1", "imgs ../../x.png 0 1"])
def test_pathfinders_lists_name_only_what_is_inside(tmp_path, line):
    from PIL import Image

    folder = tmp_path / "copy"
    (folder / "metadata").mkdir(parents=True)
    for place in (tmp_path / "out", folder / "imgs"):
        place.mkdir()
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(place / "x.png")
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "x.png")
    (folder / "metadata/0.npy").write_text(line + "\n")
    refused("lra_pathfinder", folder, "which is not inside it")


def test_pictures_are_of_one_size_and_not_too_large(tmp_path):
    from PIL import Image

    (tmp_path / "metadata").mkdir()
    for name, side in (("a.png", 4), ("b.png", 5), ("c.png", 1025)):
        Image.fromarray(np.zeros((side, side), np.uint8)).save(tmp_path / name)
    (tmp_path / "metadata/0.npy").write_text(". a.png 0 1\n. b.png 0 1\n")
    refused("lra_pathfinder", tmp_path, r"0\.npy, line 2: .*b\.png has \[5, 5\] pixels")
    (tmp_path / "metadata/0.npy").write_text(". c.png 0 1\n")
    refused("lra_pathfinder", tmp_path, "1024 a side is the most")


@pytest.mark.parametrize("form", ["imdb", "text_files", "mnist"])
def test_links_out_of_the_folder_are_refused(tmp_path, form):
    out = tmp_path / "out"
    out.write_bytes(b"text\n")
    folder = tmp_path / "copy"
    names = {
        "imdb": [f"{p}/{c}/1.txt" for p in ("train", "test") for c in ("neg", "pos")],
        "text_files": ["train.de", "train.en"],
        "mnist": ["train-images-idx3-ubyte"],
    }
    for name in names[form]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(out)
    refused(form, folder, "is a link to .*out, outside")


def test_empty_splits_are_refused(tmp_path):
    for part in ("train", "test"):
        for name in ("neg", "pos"):
            (tmp_path / part / name).mkdir(parents=True)
    refused("imdb", tmp_path, "train/neg is empty: it holds no review")
    refused("lra_listops", listops(tmp_path, ""), r"basic_train\.tsv is empty")
    for name in ("train", "eval", "test"):
        (tmp_path / f"new_aan_pairs.{name}.tsv").write_text("")
    refused("lra_aan", tmp_path, r"train\.tsv is empty")
    (tmp_path / "train.de").write_text("\n")
    (tmp_path / "train.en").write_text("\n")
    refused("text_files", tmp_path, "hold no pair")


CRITEO = "\t".join(["1", *["3"] * 13, *["ab"] * 26]) + "\n"


@pytest.mark.parametrize("cell", ["nan", "inf", "1e9", "0x1", "٣", "9" * 400, "--5"])
def test_counts_are_whole_numbers(tmp_path, cell):
    path = tmp_path / "train.txt"
    path.write_text(CRITEO + CRITEO.replace("3", cell, 1))
    refused("criteo", path, r"train\.txt, line 2: .* is no count")
    path.write_text(f"1,2,3,pv,{cell}\n")
    refused("taobao", path, r"train\.txt, line 1: five columns")


def test_wrong_encodings_are_named_with_their_line(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(CRITEO.encode() + CRITEO.encode().replace(b"ab", b"a\xff", 1))
    refused("criteo", path, r"train\.txt, line 2: not UTF-8")
    listops(tmp_path, "[MAX 2 ]\t2\n")
    (tmp_path / "basic_val.tsv").write_bytes(b"Source\tTarget\n[MAX 2 ]\t2\n\xe9\n")
    refused("lra_listops", tmp_path, r"basic_val\.tsv, line 3: not UTF-8")
    for name in ("train", "eval", "test"):
        (tmp_path / f"new_aan_pairs.{name}.tsv").write_bytes(b"1\ta\tb\tc\td\n\xff")
    refused("lra_aan", tmp_path, r"train\.tsv, line 2: not UTF-8")


@pytest.mark.parametrize(
    "line",
    [
        '{"reviewerID": 3, "asin": "x", "unixReviewTime": 1}',
        '{"reviewerID": "a", "asin": ["x"], "unixReviewTime": 1}',
        '{"reviewerID": "a", "asin": "x", "unixReviewTime": 1e999}',
        '{"reviewerID": "a", "asin": "x", "unixReviewTime": NaN}',
        '{"reviewerID": "a", "asin": "x", "unixReviewTime": true}',
        "'reviewerID asin unixReviewTime'",
        "[" * 100_000,
        '{"a":' + "[" * 100_000,
        "(" * 3000 + ")" * 3000,
    ],
)
def test_reviews_hold_what_reviews_hold(tmp_path, line):
    (tmp_path / "r").write_text(line + "\n")
    (tmp_path / "m").write_text('{"asin": "x", "categories": [["Toys"]]}\n')
    with pytest.raises(StoredDataError, match=r"r, line 1: an object with reviewerID, asin"):
        read_amazon(tmp_path / "r", tmp_path / "m")


def test_no_reviews_and_wrong_categories_are_refused(tmp_path):
    (tmp_path / "r").write_text('{"reviewerID": "a", "asin": "x", "unixReviewTime": 1}\n')
    (tmp_path / "m").write_text('{"asin": "x", "categories": [3]}\n')
    with pytest.raises(StoredDataError, match=r"m, line 1: an object with asin, categories"):
        read_amazon(tmp_path / "r", tmp_path / "m")
    (tmp_path / "r").write_text("\n")
    (tmp_path / "m").write_text("")
    with pytest.raises(StoredDataError, match="r is empty"):
        read_amazon(tmp_path / "r", tmp_path / "m")


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "train.txt")
    refused("criteo", tmp_path / "train.txt", "is no regular file")


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
    import json

    import datasets

    datasets.Dataset.from_dict({"text": ["a"], "label": [0]}).save_to_disk(str(tmp_path / "saved"))
    state = tmp_path / "saved/state.json"
    said = json.loads(state.read_text())
    said["_data_files"][0]["filename"] = "../elsewhere.arrow"
    state.write_text(json.dumps(said))
    refused("hugging_face", tmp_path / "saved", "which is not inside it")
    state.write_text("[" * 100_000)
    refused("hugging_face", tmp_path / "saved", r"state\.json is no record")
