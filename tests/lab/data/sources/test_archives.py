import pytest

from regard.lab.data.sources.fetch import open_archive
from tests.lab.data.sources.packages import FILES, deb, tgz, wheel


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("toy-1.0.whl", wheel()),
        ("toy-1.0.tar.gz", tgz()),
        ("toy.tgz", tgz()),
        ("toy.deb", deb()),
        ("of links.deb", deb(links={"data/c.txt": "a.txt"})),
    ],
)
def test_every_kind_of_package_is_read_alike(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    assert open_archive(path, "toy") == FILES


def test_a_file_is_an_archive_too(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"first")
    assert open_archive(path, "Packages") == {"Packages": b"first"}
