import pytest

from regard.core import UnknownNameError
from regard.lab.data.archives import joined, open_archive
from tests.lab.data.sources.packages import FILES, deb, tgz, wheel


def stored(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [("toy-1.0.whl", wheel()), ("toy-1.0.tar.gz", tgz()), ("toy.tgz", tgz()), ("toy.deb", deb())],
)
def test_every_kind_of_package_is_read_alike(tmp_path, name, content):
    archive = open_archive(stored(tmp_path, name, content))
    assert archive.names() == sorted(FILES)
    assert {name: archive.read(name) for name in FILES} == FILES


def test_a_file_is_an_archive_too(tmp_path):
    path = stored(tmp_path, "a.txt", b"first")
    assert open_archive(path).read("a.txt") == b"first"
    assert open_archive(path, "Packages").names() == ["Packages"]


def test_symbolic_links_are_no_files(tmp_path):
    archive = open_archive(stored(tmp_path, "toy.deb", deb(links={"data/c.txt": "a.txt"})))
    assert archive.names() == sorted(FILES)


def test_joined_archives_are_one(tmp_path):
    first = open_archive(stored(tmp_path, "a.whl", wheel({"x": b"1"})))
    second = open_archive(stored(tmp_path, "b.deb", deb({"y": b"2"}, {"z": "y"})))
    both = joined("both", [first, second])
    assert both.names() == ["x", "y"]
    assert both.read("x") + both.read("y") == b"12"


def test_an_unknown_member_is_named(tmp_path):
    archive = open_archive(stored(tmp_path, "toy.whl", wheel()))
    with pytest.raises(
        UnknownNameError, match=r"file of toy\.whl 'data/a\.tx'\. Did you mean 'data/a\.txt'"
    ):
        archive.read("data/a.tx")
