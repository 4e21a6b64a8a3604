"""The command line, in this process where that is possible."""

import inspect
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest
import torch

import regard
from regard.cli import COMMANDS, arena
from regard.cli.arguments import amount, given_options, option, parse
from regard.cli.commands import CLASSES
from regard.cli.describe import about, catalog
from regard.core import Catalog, RegardError
from regard.functional.patterns import Block, First, Window
from regard.lab import Entry, Question, Setting, questions
from regard.lab.experiment import mechanism_laws as laws
from regard.lab.experiment.ledger import Ledger, row_key
from regard.testing import LawError
from tests.command import loaded, python, ran, refused


def test_python_m_regard_is_the_same():
    done, said = python("-m", "regard", "lss"), "unknown command 'lss'. Did you mean 'ls'?"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"regard: {said}\n")


def test_help_names_every_command_and_ends_in_a_terminal_of_three_columns(capsys, monkeypatch):
    code, out, _ = ran(capsys, "--help")
    assert code == 0 and list(COMMANDS) == list(CLASSES)
    assert all(f"  {name:<11}{what}\n" in out for name, what in COMMANDS.items())
    assert ran(capsys) == (0, out, "")
    monkeypatch.setenv("COLUMNS", "3")
    assert ran(capsys, "ls --help")[0] == 0


def test_ls_lists_every_catalogue(capsys):
    found = loaded(capsys, "ls")
    for kind, rows in found.items():
        assert [row["name"] for row in rows] == catalog(kind).names()
    assert loaded(capsys, "ls mixers") == found["mixers"]
    _, out, _ = ran(capsys, "ls")
    assert all(row["name"] in out for rows in found.values() for row in rows)


@pytest.mark.parametrize("name", regard.MIXERS.names())
def test_show_tells_each_mixer_whole(capsys, name):
    about = loaded(capsys, "show", name)[0]
    cls = regard.MIXERS[name]
    assert about["paper"] == cls.paper
    assert about["paper"].split("arXiv ")[-1] in about["text"]
    for ability, reason in cls.capabilities.refusals().items():
        assert about["capabilities"][ability] == f"no: {reason}"
    assert {option["name"] for option in about["options"]} >= {"dim"}
    code, out, _ = ran(capsys, "show", name)
    assert code == 0
    folded = " ".join(out.split())
    for text in (cls.paper, cls.capabilities.time, *cls.capabilities.refusals().values()):
        assert " ".join(text.split()) in folded


@pytest.mark.parametrize("kind", ["mixers", "pools", "scores", "positions", "models"])
def test_show_tells_meaning_and_allowed_values_of_every_option(kind):
    for entry in filter(inspect.isclass, catalog(kind).values()):  # others have their options fixed
        for told in about(kind, entry)["options"]:
            assert told["meaning"] and told["values"], (entry.name, told)


SAID = {
    "--version": f"^regard {re.escape(regard.__version__)}\n$",
    "show reformer": r"\n seed .* an integer of at least 0 or None .* seed of the random num",
    "show linformer": r"heads, H \(a model gives it\)(.|\n)* one of 'none', 'headwise', 'key_value', 'layerwise'",
    "show swiglu": "silu",
    "show listops": "ListOps expressions",
    "show fingerprint": "local, window 4; strided",
    "train --help": "regard ls tasks",
    "train digits --help": "share of values that is set to zero",
    "laws linear --law batch isolation": r"pairwise is declared a No(.|\n)*1 passed, 1 does not apply",
    "data ls": "\nR  research only or unclear",
}
"""Command -> what it says, a regular expression."""


@pytest.mark.parametrize("line", SAID)
def test_what_a_command_says(capsys, line):
    code, out, _ = ran(capsys, line)
    assert code == 0 and re.search(SAID[line], out), out


@pytest.mark.parametrize("terminal", [True, False])
def test_names_stay_whole_in_80_columns_and_in_a_pipe(capsys, monkeypatch, terminal):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    for kind in ("mixers", "models", "tasks"):
        _, out, _ = ran(capsys, "ls", kind)
        first = {line.split()[0] for line in out.splitlines() if line.strip()}
        assert set(catalog(kind).names()) <= first
    assert "\n position_options " in ran(capsys, "show softmax")[1]


def test_the_shell_completes_commands_and_options(capsys, tmp_path):
    code, out, _ = ran(capsys, "--tyro-print-completion", "bash")
    assert code == 0
    asked = "COMP_WORDS=(regard arena --mix); COMP_CWORD=2; _tyro_regard; echo ${COMPREPLY[@]}"
    (tmp_path / "completion").write_text(f"{out}\n{asked}\n")
    found = subprocess.run(["bash", tmp_path / "completion"], capture_output=True, text=True)
    assert found.stdout == "--mixers\n", found.stderr


def test_bench_times_no_mixer_that_breaks_a_law(capsys, tmp_path, monkeypatch):
    asked = []

    def check(factory, **_):
        asked.append(factory().name)
        if factory().name == "linear":
            raise LawError("causality: linear: token 3 moves output 1")

    monkeypatch.setattr(laws, "check_mixer", check)
    line = f"bench --mixers local linear --lengths 8 --passes forward --dim 8 --seconds 0.01 --ledger {tmp_path}/l.sqlite"
    for _ in range(2):  # the second time from the ledger
        found = loaded(capsys, line)
        assert [row["mixer"] for row in found["timed"]] == ["local"] and found["laws_checked"]
        (absent,) = found["not_run"]
        assert absent["not run"].startswith("linear breaks a law. causality")
    assert asked == ["local", "linear"]
    assert not loaded(capsys, line, "--unchecked")["not_run"]


def test_bench_rows_say_how_they_were_measured_and_what_cannot_run(capsys):
    line = "bench --mixers local fnet --lengths 8 16 --passes forward prefill --causal yes --dim 16"
    line += " --options window_size=3 --dtypes float32 bfloat16 --seconds 0.01 --unchecked"
    found = loaded(capsys, line)
    rows = found["timed"]
    assert len(rows) == 8 and not found["laws_checked"]
    assert {row["mixer"] for row in rows} == {"local"}
    assert {row["kind"] for row in rows} == {"forward", "prefill"}
    assert {row["provenance"]["dtype"] for row in rows} == {"float32", "bfloat16"}
    assert all(row["causal"] and row["options"] == {"window_size": 3} for row in rows)
    assert all(row["low_ms"] <= row["median_ms"] <= row["high_ms"] for row in rows)
    assert all(row["flops"] > 0 and 0 < row["matrix_share"] < 1 for row in rows)
    assert all(row["provenance"]["allocator"] and row["provenance"]["threads"] for row in rows)
    absent = found["not_run"]
    asked = [("fnet", "forward"), ("fnet", "prefill")]
    assert [(row["mixer"], row["pass"]) for row in absent] == asked
    _, out, _ = ran(capsys, line, "--passes", "forward")
    assert "laws: not checked" in out and absent[0]["not run"] in out


def test_arena_report_recommend_and_merge_share_the_ledger(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    setting = Setting(kind="decode", length=16, dim=16, num_heads=2, seconds=0.01)
    tiny = Question(name="tiny", about="a test", entries=(Entry(mixer="linear"),), vary=(setting,))
    monkeypatch.setattr(questions, "QUESTIONS", Catalog("question", (tiny,)))
    asked = [loaded(capsys, "arena tiny --workers 1") for _ in range(2)]
    assert [(one["new"], one["found"]) for one in asked] == [(1, 0), (0, 1)]
    started: list[list[str]] = []  # by the command that was given, whatever this process was
    other = SimpleNamespace(wait=lambda: 0, terminate=lambda: None)
    popen = SimpleNamespace(DEVNULL=None, PIPE=None)
    popen.Popen = lambda line, **how: started.append(line) or other
    monkeypatch.setattr(arena, "subprocess", popen)
    assert ran(capsys, "arena tiny --workers 2 --seeds 0 1 --json")[0] == 0
    asked_too = ["arena", "tiny", "--seeds", "0", "1", "--workers", "2", "--json"]
    assert [line[1:] for line in started] == [["-m", "regard", *asked_too]]
    assert "0 new results" in ran(capsys, "arena tiny --workers 1")[1]
    code, out, _ = ran(capsys, "report")
    assert code == 0 and str(tmp_path / "runs/arena/report.html") in out
    assert (tmp_path / "runs/arena/report.html").stat().st_size > 1000
    told = loaded(capsys, "report", "tiny")
    assert told["page"].endswith("report.html")
    assert told["questions"][0]["rows"][0]["timed"]["decode 16, unit=layer"]["ms"] > 0
    assert "Did you mean 'tiny'?" in refused(capsys, "report tinny")
    found = loaded(capsys, "recommend", "--length", "2Ki", "--decode")
    assert found["case"]["length"] == 2048
    assert [row["mechanism"] for row in found["ranked"] if row["ms"]] == ["linear"]
    assert "no ledger with results at none" in refused(capsys, "recommend --length 9 --ledger none")
    (tmp_path / "text").write_text("no ledger")
    refused(capsys, "merge all.sqlite text")
    assert not (tmp_path / "all.sqlite").exists()
    merged = loaded(capsys, "merge", "all.sqlite", "runs/arena/ledger.sqlite")
    assert [one["new rows"] for one in merged["merged"]] == [2]  # the question, and the timing
    with Ledger(tmp_path / "all.sqlite") as ledger:
        newest = next(row for row in ledger.rows() if row.kind == "asked")
        early = replace(newest.provenance, started="2020-01-01T00:00:00+00:00")
        older = replace(newest, question="older", provenance=early)
        ledger.put(row_key(older), older)
    shown: list[str] = []  # a document's picture is of its own question
    for name in ("picture", "document"):
        keep = lambda rows, *_: shown.extend(r.question for r in rows if r.kind == "asked")  # noqa: E731
        monkeypatch.setattr(f"regard.lab.report.{name}", keep)
    ran(capsys, "report --ledger all.sqlite --document d.md --picture p.svg")
    assert shown == ["tiny", "tiny"]


def test_lengths_have_units():
    assert [amount(text) for text in ("4096", "8k", "2Ki", "1.5M")] == [4096, 8000, 2048, 1.5e6]
    assert [amount(f"{n}k") for n in ("16.1", "32.2", "1.001", "1_0")] == [16100, 32200, 1001, 1e4]
    for wrong in ("many", "8K", "k", "1.2.3", "1_", ""):
        with pytest.raises(ValueError, match="is no number such as"):
            amount(wrong)
    bench = parse(CLASSES["bench"], "regard bench", ["--lengths", "1k", "2Ki", "512"])
    assert bench.lengths == (1000, 2048, 512)
    assert parse(CLASSES["arena"], "regard arena", ["--lengths", "4Ki"]).lengths == (4096,)
    with pytest.raises(RegardError, match="whole number of tokens"):
        parse(CLASSES["recommend"], "regard recommend", ["--length", "1.5"])


def test_doctor_finds_this_machine_and_what_is_missing(capsys, monkeypatch):
    rows = {row["what"]: row["found"] for row in loaded(capsys, "doctor")}
    assert rows["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert rows["threads"] == str(torch.get_num_threads())
    assert {"OMP_NUM_THREADS", "scikit-learn (lab)", "transformers (hf)"} <= rows.keys()
    monkeypatch.setattr("regard.cli.doctor.requires", lambda name: ["no-such-package>=1.0"])
    code, out, _ = ran(capsys, "doctor")
    assert code == 1 and "pip install 'no-such-package>=1.0'" in out


def test_show_tells_a_question_and_positions_of_a_mechanism_and_what_its_streaming_keeps(capsys):
    (about,) = loaded(capsys, "show", "fingerprint")
    assert (about["kind"], about["design"]) == ("question", "screen")
    assert "softmax" in about["entries"] and "lookup" in about["columns"]
    mixer, *_ = loaded(capsys, "show", "transformer_xl")
    assert mixer["kind"] == "mixer" and mixer["positions"] == ["transformer_xl"]
    assert "transformer_xl" in [row["name"] for row in loaded(capsys, "ls", "positions")]
    assert mixer["capabilities"]["streaming"] == "segment"
    assert 'Where it is "segment"' in regard.Mixer.extend.__doc__


def test_options_may_be_patterns_and_sizes_of_blocks():
    name, patterns = option("patterns=[Window(4,4), Block(8, before=1) | First(1)]")
    assert (name, patterns) == ("patterns", [Window(4, 4), Block(8, 1) | First(1)])
    assert option(f"patterns={patterns}") == ("patterns", patterns)
    mixer = regard.build("head_mix", dim=8, num_heads=2, patterns=patterns)
    assert mixer.pattern.heads == tuple(patterns)
    assert option("impl=Form(tile=8)") == ("impl", regard.Form(tile=8))
    assert option("score=additive") == ("score", "additive")
    assert option("score={[]}") == ("score", "{[]}")


def test_paths_and_texts_are_as_they_were_typed():
    types = get_type_hints(catalog("tasks")["own_table"])
    for path in ("1.10", "2024_01", "novel(1).csv"):
        assert given_options([f"path={path}"], types) == {"path": Path(path)}
    assert given_options(["target=2020", "positive=1"], types) == {
        "target": "2020",
        "positive": "1",
    }
    assert given_options(["seed=1"], types) == {"seed": 1}
    with pytest.raises(RegardError, match="NAME=VALUE"):
        given_options(["path"], types)
    with pytest.raises(RegardError, match="sizes is given twice"):
        given_options(["sizes=3", "widths=3", "sizes=3"])
    assert option("sizes=(1, 2)") == ("sizes", (1, 2))


NO_VALUES = {
    "patterns=[Windw(4, 4)]": "unknown value 'Windw'. Did you mean 'Window'",
    "patterns=[Window(4)]": "missing 1 required positional argument: 'after'",
    "patterns=[Window(4, -1)]": "after",
    f"patterns={'-' * 20_000}1": "patterns is nested too deeply to be read",
    "patterns=[Window(4, 4) | 3]": "is no value: literals, lists, All, Block",
    "patterns=__import__('os').getcwd()": "is no value",
    "patterns=[Window(*[4, 4])]": "is no value",
}


@pytest.mark.parametrize("word", NO_VALUES)
def test_what_is_no_pattern_is_refused_and_nothing_else_is_evaluated(word):
    with pytest.raises(RegardError, match=re.escape(NO_VALUES[word])):
        option(word)


def test_an_output_without_some_letters_or_closed_is_no_error():
    letter = "from regard.cli import _writable; _writable(); print('\\xe9')"
    narrow = python("-c", letter, PYTHONIOENCODING="ascii")
    assert (narrow.stdout, narrow.stderr) == ("\\xe9\n", "")
    closed = "import sys; sys.stdout = None; sys.argv[1:] = ['ls', 'pools']; from regard.cli import run; run()"
    done = python("-c", closed)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
