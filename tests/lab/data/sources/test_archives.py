"""Every kind of package is read alike, and a file is an archive of itself."""

import pytest

from regard.lab.data.sources.fetch import open_archive
from tests.lab.data.sources.packages import FILES, deb, tgz, wheel

PACKAGES = {
    "toy-1.0.whl": wheel(),
    "toy-1.0.tar.gz": tgz(),
    "toy.tgz": tgz(),
    "toy.deb": deb(),
    "of links.deb": deb(links={"data/c.txt": "a.txt"}),
    "a.txt": b"first",
}


@pytest.mark.parametrize("name", PACKAGES)
def test_every_kind_of_package_is_read_alike(tmp_path, name):
    (tmp_path / name).write_bytes(PACKAGES[name])
    expected = {"toy": b"first"} if name == "a.txt" else FILES
    assert open_archive(tmp_path / name, "toy") == expected
