"""A few rows of each format, written here as the release writes them."""

import gzip
import pickle
import struct

import numpy as np
import pytest

from regard.core import MissingDataError, StoredDataError, UnknownNameError
from regard.lab.data.labelled import Images
from regard.lab.data.listops import VOCABULARY
from regard.lab.data.own import OWN, texts
from regard.lab.data.own.images import grey


@pytest.mark.parametrize("name", OWN.names())
def test_a_copy_that_is_not_there_is_described(name, tmp_path):
    with pytest.raises(MissingDataError, match=r"there is no .*nowhere.* Expected: "):
        OWN[name].read(tmp_path / "nowhere")


def listops(folder, rows):
    for part in ("train", "val", "test"):
        (folder / f"basic_{part}.tsv").write_text("Source\tTarget\n" + rows)
    return folder


def test_listops_drops_the_round_brackets(tmp_path):
    rows = "( ( ( [MAX 2 ) 9 ) ] )\t9\n( ( ( [SM ( ( ( [MIN 4 ) 7 ) ] ) ) 8 ) ] )\t2\n"
    parts = OWN["lra_listops"].read(listops(tmp_path, rows))
    assert list(parts) == ["train", "valid", "test"]
    found = parts["train"]
    words = [VOCABULARY[number] for number in found.tokens]
    assert " ".join(words) == "[MAX 2 9 ] [SM [MIN 4 7 ] 8 ]"
    assert found.lengths.tolist() == [4, 7] and found.values.tolist() == [9, 2]
    assert OWN["lra_listops"].sizes(tmp_path)["test"] == {"items": 2}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("( [AVG 2 ] )\t1\n", r"line 2: unknown '\[AVG'"),
        ("[MAX 2 ]\n", "a tab and a digit"),
        ("[MAX 2 ]\t12\n", "a digit"),
    ],
)
def test_listops_names_the_line_that_it_cannot_read(tmp_path, row, why):
    with pytest.raises(StoredDataError, match=why):
        OWN["lra_listops"].read(listops(tmp_path, row))


def test_pairs_of_papers_may_be_long_and_hold_quotes(tmp_path):
    long = "word " * 60_000
    rows = f'1.0\tP01\tP02\t"a ""quoted""\ttab"\t{long}\n0\tP03\tP04\tc\td\n'
    for part in ("train", "eval", "test"):
        (tmp_path / f"new_aan_pairs.{part}.tsv").write_text(rows)
    found = OWN["lra_aan"].read(tmp_path)["valid"]
    assert found.first == [b'a "quoted"\ttab', b"c"]
    assert found.second == [long.encode(), b"d"]
    assert found.labels.tolist() == [1, 0]
    (tmp_path / "new_aan_pairs.test.tsv").write_text("2.0\ta\tb\tc\td\n")
    with pytest.raises(StoredDataError, match=r"test\.tsv, line 1: expected a label"):
        OWN["lra_aan"].read(tmp_path)


def test_pathfinder_reads_what_its_lists_name(tmp_path):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32), dtype=np.uint8)
    (tmp_path / "metadata").mkdir()
    for number, picture in enumerate(pixels):
        folder = tmp_path / "imgs" / str(number // 2)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"sample_{number % 2}.png")
    (tmp_path / "imgs/0/sample_2.png").write_bytes(b"")
    rest = "14 2 0.5 3\n"
    (tmp_path / "metadata/0.npy").write_text(
        f"imgs/0 sample_0.png 0 1 {rest}imgs/0 sample_1.png 1 0 {rest}imgs/0 sample_2.png 2 1 {rest}"
    )
    (tmp_path / "metadata/1.npy").write_text(f"imgs/1 sample_0.png 0 1 {rest}")
    found = OWN["lra_pathfinder"].read(tmp_path)["all"]
    assert np.array_equal(found.pixels, pixels)
    assert found.labels.tolist() == [1, 0, 1]
    (tmp_path / "imgs/1/sample_0.png").write_bytes(b"no picture")
    with pytest.raises(StoredDataError, match=r"sample_0\.png cannot be read as a picture"):
        OWN["lra_pathfinder"].read(tmp_path)


def test_reviews_are_labelled_by_their_folder(tmp_path):
    for part in ("train", "test"):
        for name, text in (("neg", b"bad \xe9"), ("pos", b"good")):
            (tmp_path / part / name).mkdir(parents=True)
            (tmp_path / part / name / "0_1.txt").write_bytes(text)
    found = OWN["imdb"].read(tmp_path)["test"]
    assert found.texts == [b"bad \xe9", b"good"]
    assert found.labels.tolist() == [0, 1] and found.classes == ("neg", "pos")


def batch(pixels, labels):
    flat = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    written = pickle.dumps({b"data": flat, b"labels": labels}, protocol=2)
    return written.replace(b"numpy._core", b"numpy.core")  # as the release has it


def test_cifar_comes_out_as_rows_of_colours(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        (tmp_path / name).write_bytes(batch(pixels, [3, 9]))
    parts = OWN["cifar10"].read(tmp_path)
    assert np.array_equal(parts["test"].pixels, pixels)
    assert parts["train"].pixels.shape == (10, 32, 32, 3)
    assert parts["train"].labels.tolist() == [3, 9] * 5
    luma = 0.2989 * pixels[1, 2, 3, 0] + 0.587 * pixels[1, 2, 3, 1] + 0.114 * pixels[1, 2, 3, 2]
    assert grey(pixels)[1, 2, 3] == int(luma)


class Evil:
    def __reduce__(self):
        return (print, ("run",))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (pickle.dumps(Evil()), r"it asks for builtins\.print"),
        (b"no pickle", "is no batch of CIFAR-10"),
        (
            pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}),
            "2 pictures and 1",
        ),
    ],
)
def test_a_pickle_that_is_no_batch_is_refused_unopened(tmp_path, capsys, content, why):
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(StoredDataError, match=why):
        OWN["cifar10"].read(tmp_path)
    assert capsys.readouterr().out == ""


def test_mnist_is_read_packed_or_not(tmp_path):
    pixels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    for stem, suffix, pack in (("train", "", bytes), ("t10k", ".gz", gzip.compress)):
        for kind, values in (("images-idx3", pixels), ("labels-idx1", np.array([7, 1], np.uint8))):
            head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
            (tmp_path / f"{stem}-{kind}-ubyte{suffix}").write_bytes(pack(head + values.tobytes()))
    parts = OWN["mnist"].read(tmp_path)
    for found in parts.values():
        assert isinstance(found, Images)
        assert np.array_equal(found.pixels, pixels) and found.labels.tolist() == [7, 1]
    assert OWN["mnist"].sizes(tmp_path) == {"train": {"items": 2}, "test": {"items": 2}}


def test_enwik8_is_cut_in_the_usual_places(tmp_path):
    text = bytes(range(200))
    parts = texts.wikipedia_parts(text)
    assert [len(part) for part in parts.values()] == [180, 10, 10]
    assert b"".join(parts.values()) == text
    (tmp_path / "text8").write_bytes(text)
    for name in ("enwik8", "text8"):
        with pytest.raises(
            StoredDataError, match=rf"has 200 bytes\. Expected: the file {name}, unpacked"
        ):
            OWN[name].read(tmp_path / "text8")


def test_enwik8_and_text8_are_told_apart_by_what_they_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "WIKIPEDIA_BYTES", 200)
    (tmp_path / "letters").write_bytes(b"anarchism " * 20)
    (tmp_path / "pages").write_bytes(b"<mediawiki xmlns=" + b" " * 183)
    assert b"".join(OWN["text8"].read(tmp_path / "letters").values()) == b"anarchism " * 20
    assert len(OWN["enwik8"].read(tmp_path / "pages")["train"]) == 180
    with pytest.raises(StoredDataError, match=r"begins with b'anarchism '\. Expected: the file en"):
        OWN["enwik8"].read(tmp_path / "letters")
    with pytest.raises(StoredDataError, match=r"holds b'<='\. Expected: the file text8"):
        OWN["text8"].read(tmp_path / "pages")


def test_two_files_of_sentences_are_counted(tmp_path):
    (tmp_path / "train.de").write_text("eins\nzwei\n")
    with pytest.raises(StoredDataError, match=r"has 1 files train\.\*\. Expected: a folder"):
        OWN["text_files"].read(tmp_path)
    (tmp_path / "train.en").write_text("one\ntwo\n")
    assert OWN["text_files"].read(tmp_path) == {"train": [("eins", "one"), ("zwei", "two")]}
    assert OWN["text_files"].sizes(tmp_path) == {"train": {"pairs": 2}}


def test_criteo_is_counted(tmp_path):
    row = "\t".join(["{}", *("3" for _ in range(13)), *("ab" for _ in range(26))]) + "\n"
    (tmp_path / "train.txt").write_text(row.format(1) + row.format(0))
    assert OWN["criteo"].sizes(tmp_path / "train.txt") == {
        "all": {"rows": 2, "clicked": 1, "fields": 39}
    }
    with pytest.raises(StoredDataError, match=r"is a folder\. Expected: the file train\.txt"):
        OWN["criteo"].read(tmp_path)


def test_shops_are_counted(tmp_path):
    (tmp_path / "clicks.csv").write_text("1,7,3,pv,100\n1,8,3,buy,101\n2,8,3,pv,102\n")
    counts = {"behaviours": 2, "users": 2, "items": 2, "categories": 1}
    assert OWN["taobao"].sizes(tmp_path / "clicks.csv") == {"all": counts}
    with pytest.raises(StoredDataError, match=r"has 0 files reviews_\*\. Expected: a folder"):
        OWN["amazon_reviews"].read(tmp_path)
    review = '{"reviewerID": "a", "asin": "%s", "unixReviewTime": 1}\n'
    (tmp_path / "reviews_Toys.json").write_text(review % "x" + review % "y")
    (tmp_path / "meta_Toys.json").write_text('{"asin": "x", "categories": [["Toys", "Dolls"]]}\n')
    assert OWN["amazon_reviews"].sizes(tmp_path) == {
        "all": {"behaviours": 2, "users": 1, "items": 2, "categories": 1}
    }


def test_saved_data_sets_of_hugging_face(tmp_path):
    import datasets

    from regard.lab.data.own.texts import read_columns

    features = datasets.Features(
        words=datasets.Value("string"), mood=datasets.ClassLabel(names=["sad", "glad"])
    )
    rows = datasets.Dataset.from_dict({"words": ["no", "yé"], "mood": [0, 1]}, features=features)
    datasets.DatasetDict(train=rows, test=rows).save_to_disk(str(tmp_path / "parts"))
    rows.save_to_disk(str(tmp_path / "whole"))
    found = read_columns(tmp_path / "parts", text="words", label="mood")
    assert list(found) == ["train", "test"]
    assert found["test"].texts == [b"no", "yé".encode()]
    assert found["test"].labels.tolist() == [0, 1] and found["test"].classes == ("sad", "glad")
    assert list(read_columns(tmp_path / "whole", text="words", label="mood")) == ["all"]
    with pytest.raises(UnknownNameError, match="unknown column 'text'"):
        OWN["hugging_face"].read(tmp_path / "whole")
