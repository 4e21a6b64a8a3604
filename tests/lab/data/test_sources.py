"""Fetching, with shell scripts in the place of package clients; no test asks a registry."""

import os

import pytest

from regard.core import MissingDataError, OptionError, StoredDataError
from regard.lab.data.sources.fetch import get, open_archive, open_source
from tests.registry import FILES, client, deb, package, source, tgz, wheel


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "cache"


@pytest.fixture
def npm(tmp_path, cache):
    """npm that packs what lies in `shelf`, and writes down what it was asked."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    script = f'echo "$@" >> {tmp_path}/asked\ncp {shelf}/"${{2%@*}}" packed.tgz'
    client(tmp_path / "bin", "npm", script)
    return shelf


def partial(cache):
    return [name for name in os.listdir(cache) if name.startswith("partial-")]


def test_packages_are_fetched_checked_and_read_once(npm, cache, tmp_path):
    other = tgz({"c": b"third"})
    toys = source(package("toy-1.0.tgz", tgz()), package("late-1.0.tgz", other, name="late"))
    with pytest.raises(MissingDataError, match=r"toys is not .*`regard data get toys`.*for play"):
        open_source(toys)
    (npm / "toy").write_bytes(tgz())
    with pytest.raises(MissingDataError, match=r"late 1\.0 could not be fetched"):
        get(toys)
    assert os.listdir(cache / "packages") == ["toy-1.0.tgz"] and not partial(cache)
    (npm / "late").write_bytes(other)
    get(toys)
    asked = (tmp_path / "asked").read_text().split("\n")
    assert asked == ["pack toy@1.0", "pack late@1.0", "pack late@1.0", ""]
    assert open_source(toys) == FILES | {"c": b"third"} and next(iter(open_source(toys))) == "c"


def test_a_file_that_was_altered_in_the_cache_is_refused(npm, cache):
    (npm / "toy").write_bytes(tgz())
    toys = source(package("toy-1.0.tgz", tgz()))
    get(toys)
    (cache / "packages" / "toy-1.0.tgz").write_bytes(tgz()[:-1] + b"x")
    for read in (get, open_source):
        with pytest.raises(StoredDataError, match=r"toy-1\.0\.tgz is not toy 1\.0.* Delete the"):
            read(toys)


def test_a_missing_client_is_named_with_the_way_round_it(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    cache.mkdir()
    with pytest.raises(MissingDataError, match=r"by npm, which is not on this.*`--folder FOLDER`"):
        get(source(package("toy-1.0.tgz", tgz())))


def test_a_folder_takes_the_place_of_the_registry(cache, tmp_path):
    shelf = tmp_path / "files"
    shelf.mkdir()
    (shelf / "under another name").write_bytes(wheel())
    (shelf / "of the same size").write_bytes(b"x" * len(wheel()))
    toys = source(package("toy-1.0.whl", wheel(), "pypi"))
    get(toys, folder=shelf)
    assert open_source(toys) == FILES
    other = source(package("toy.deb", deb(), "debian"))
    with pytest.raises(StoredDataError, match=r"holds no file of .* which is toy 1\.0"):
        get(other, folder=shelf)
    with pytest.raises(OptionError, match="there is no such folder"):
        get(other, folder=tmp_path / "nowhere")


def test_the_index_is_taken_from_the_lists_by_language(cache, tmp_path):
    body = b"Package: toy\n"
    listed = f"{cache}/apt/lists/deb.debian.org_debian_dists_bookworm_main_i18n_Translation-de"
    script = f"printf 'Package: toy\\n' > {listed}\ncp {cache}/apt/apt.conf {tmp_path}/conf"
    client(tmp_path / "bin", "apt-get", script)
    toys = source(package("index-de", body, "debian-index", name="Translation-de"))
    get(toys)
    assert open_source(toys) == {"Translation-de": body}
    assert 'Acquire::Languages { "de"; };' in (tmp_path / "conf").read_text()


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
