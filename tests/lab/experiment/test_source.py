"""A row has one source: an edited mixer never shares a row with its former self, and an entry is labelled as it was typed."""

import importlib
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import regard
from regard import OptionError
from regard.lab import Column, Entry, Shell, ask
from regard.lab.data import source as module
from regard.lab.data.source import own_files
from regard.lab.experiment import laws, mechanism_laws, provenance, trial
from regard.lab.experiment.laws import ExperimentError
from regard.lab.experiment.ledger import Ledger
from regard.lab.report import told, write_page
from regard.lab.train.config import TrainConfig
from tests.lab.experiment.tiny import SCREEN, TINY, few_pairs

MINE = """
import torch
from regard.mixers import Linear

SCALE = {scale}


class Mine(Linear):
    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads)
        with torch.no_grad():
            for weight in self.parameters():
                weight.mul_(SCALE)
"""


HOME = Path(regard.__file__).parent


class Folder:
    def __init__(self, path):
        self.path = path

    def write(self, name, text):
        (self.path / name).parent.mkdir(exist_ok=True, parents=True)
        (self.path / name).write_text(text)

    def forget(self):
        for name, held in list(sys.modules.items()):
            if str(getattr(held, "__file__", None)).startswith(str(self.path)):
                del sys.modules[name]
        importlib.invalidate_caches()

    def load(self, typed):
        self.forget()
        name, _, cls = typed.partition(":")
        return Entry(mixer=getattr(importlib.import_module(name), cls), typed=typed)

    def mine(self, scale):
        self.write("mm.py", MINE.format(scale=scale))
        return self.load("mm:Mine")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two edits in a second, of one size
    # the library's files are read once, one's own anew
    for name in ("_code", "_located", "_imported"):
        known = getattr(module, name)

        def read(*given, known=known, **how):
            ours = any(str(one).startswith(("regard.", str(HOME))) for one in given)
            return (known if ours else known.__wrapped__)(*given, **how)

        monkeypatch.setattr(module, name, read)
    folder = Folder(tmp_path)
    yield folder
    folder.forget()


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(mechanism_laws, "check_mixer", lambda factory, **_: ["all"])
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        yield ledger


def run(ledger, *entries, **changes):
    question = replace(SCREEN, entries=(Entry(mixer="softmax"), *entries), rates=(1e-2,), **changes)
    ask(question, ledger, ledger.path.parent / "trials")
    return told(ledger.rows())["questions"][0]


def cell(said, label="mm:Mine"):
    (row,) = [row for row in said["rows"] if row["entry"] == label]
    return row["cells"]["address"]


def test_values_before_an_edit_meet_none_after_it(folder, ledger, tmp_path):
    said = run(ledger, folder.mine(1.0), seeds=(0, 1, 2))
    before = cell(said)
    assert len(before["values"]) == 3 and said["old"] == {}
    said = run(ledger, folder.mine(4.0))
    assert cell(said)["seeds"] == [0, 1] and said["old"].pop("mm:Mine") == 3
    assert {*said["old"].values()} == {1}, "of the third seed, which is not asked for now"
    page = write_page(ledger.rows(), tmp_path / "r.html").read_text()
    assert '"mm:Mine":3' in page
    assert cell(said, "softmax")["seeds"] == [0, 1], "of three, whose source is as it was"
    # as it was once more: nothing is trained, and what was old is not
    count = len(ledger.rows())
    said = run(ledger, folder.mine(1.0), seeds=(0, 1, 2))
    assert len(ledger.rows()) == count + 1  # the question, asked anew
    assert cell(said) == before and said["old"] == {"mm:Mine": 2}


BASE = "from regard.mixers import Linear\nfrom {} import X\n\n\nclass Base(Linear):\n    x = X\n"


def test_an_edit_of_whatever_a_class_needs_changes_its_source(folder):
    late = "X = 1\n\n\ndef late():\n    from some.folder.deep import Y\n"
    files = {"m": "from base import Base\n\n\nclass Mine(Base):\n    pass\n", "helper": late}
    files |= {"some/folder/deep": "Y = 1\n", "apart": "import torch\n"}
    files["base"] = BASE.format("helper")
    for name, text in files.items():
        folder.write(f"{name}.py", text)
    sources = [folder.load("m:Mine").source]
    for name in ("apart", "m", "base", "helper", "some/folder/deep"):
        folder.write(f"{name}.py", files[name] + "Z = 1\n")
        sources.append(folder.load("m:Mine").source)
    assert sources[0] == sources[1] and len({*sources[1:]}) == 5


CODE = '''"""A module."""
KERNEL = """
# define N 4
  text
"""
\x0c

def f(x): "a docstring that shares its line"; return x + 1


def g(x):
    """What g does.

    # Not code.
    """
    return x  # beside code
'''


@pytest.mark.parametrize(("old", "new", "changes"), [
    ('"""A module."""', '"""Another module."""', False),
    ("What g does.", "What g does, told better.", False),
    ("# Not code.", "# Nor this.", False),
    ("def g(x):", "# A comment.\n\ndef g(x):", False),
    ("# define N 4", "# define N 8", True),
    ("  text", "   text", True),
    ("return x + 1", "return x + 2", True),
    ("return x  #", "return -x  #", True),
])  # fmt: skip
def test_comments_and_docstrings_are_no_code_and_all_else_is(tmp_path, old, new, changes):
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    assert CODE.count(old) == 1
    one.write_text(CODE)
    two.write_text(CODE.replace(old, new))
    assert (module._code(one) != module._code(two)) == changes


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Has this file of the library read as if it had one more line."""

    def edit(path):
        real, copy = module._located, tmp_path / "edited.py"
        copy.write_text((HOME / path).read_text() + "\nEDITED = 1\n")
        located = lambda name: copy if real(name) == HOME / path else real(name)  # noqa: E731
        monkeypatch.setattr(module, "_located", located)

    return edit


CONCERNED = {
    "mixers/local.py": "local",
    "functional/window.py": "local",
    "mixers/softmax.py": "softmax",
    **dict.fromkeys(("core/mask.py", "fast/cpu/favor.py"), "local softmax linear"),
    **dict.fromkeys(("testing/laws/masks.py", "lab/report/told.py"), ""),
}


@pytest.mark.parametrize("edited", CONCERNED)
def test_an_edit_of_the_library_concerns_the_mixers_that_reach_it(edit, edited):
    mixers = {name: regard.MIXERS[name] for name in ("local", "softmax", "linear")}
    before = {name: module.source.__wrapped__(cls) for name, cls in mixers.items()}
    edit(edited)
    changed = [n for n, cls in mixers.items() if module.source.__wrapped__(cls) != before[n]]
    assert changed == CONCERNED[edited].split()


def test_an_edit_of_what_trains_makes_its_own_results_old(edit):
    def keys():
        columns = replace(TINY.vary[0], train=TrainConfig(steps=2)), TINY.vary[0]
        return [trial.content(one, TINY.entries[0], None, None, None) for one in columns]

    kept = replace(TINY.vary[0], train=TrainConfig(steps=2, workers=1, keep=9, checkpoint_every=7))
    assert (
        trial.content(kept, TINY.entries[0], None, None, None) == keys()[0]
    )  # no batch is another
    (before, short), _ = keys(), edit("lab/train/loop.py")
    after, same = keys()
    assert before != after and short == same
    assert {**before, "trained by": 0} == {**after, "trained by": 0}


def test_what_stands_beside_the_entry_is_in_its_key(folder, tmp_path):
    def key(mixer):
        shell = Shell(dim=16, num_heads=2, fields={"cross_mixer": mixer})
        column = Column(name="c", task=task, train=TrainConfig(steps=1), shell=shell)
        return trial.content(column, Entry(mixer="softmax"), task.load(), None, None)

    task = few_pairs(tmp_path)
    before, after = key(folder.mine(1.0).mixer), key(folder.mine(2.0).mixer)
    assert before["sources"]["mm:Mine"] != after["sources"]["mm:Mine"]
    assert [*key("linear")["beside"]["sources"]] == ["regard.mixers.linear:Linear"]
    with pytest.raises(OptionError, match="shell: f"):
        Shell(fields={"cross_mixer_options": {"f": lambda x: x}})


def test_a_mixer_that_no_commit_holds_is_a_change(folder, tmp_path, monkeypatch):
    head = "0123456789ab"
    git = partial(subprocess.run, cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(provenance, "_head", lambda: head)
    mine = lambda of: [path for path in own_files(of) if path.parent == tmp_path]  # noqa: E731
    monkeypatch.setattr("regard.lab.experiment.entry.own_files", mine)
    monkeypatch.setattr(mechanism_laws, "check_mixer", lambda factory, **_: ["all"])
    author = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]
    folder.write("helper.py", "X = 1\n")
    folder.write("base.py", BASE.format("helper"))
    begin = [["git", "init", "-q"], ["git", "add", "base.py"], author]
    steps = {
        "in no repository": ([], False),
        "a helper is untracked": (begin, False),
        "all is in a commit": ([["git", "add", "helper.py"], author], True),
        "a helper is edited": ([["rm", "helper.py"]], False),
    }
    for name, (commands, clean) in steps.items():
        for command in commands:
            git(command)
        folder.write("helper.py", "X = 2\n" if "edited" in name else "X = 1\n")
        provenance.commit.cache_clear()
        entry = folder.load("base:Base")
        assert (entry.commit == head) == clean == (entry.commit != f"{head}+changes"), name
        assert Entry(make=partial(entry.mixer, 1), title="made").commit == entry.commit
        assert Entry(mixer="scored", options={"score": entry.mixer}).commit == entry.commit
        around = replace(SCREEN.trained[0], shell=Shell(fields={"mixer": entry.mixer}))
        assert laws.worst_commit(replace(SCREEN, vary=(around,))) == entry.commit
        entries = (Entry(mixer="softmax"), entry)
        question = replace(SCREEN, entries=entries, rates=(1e-2,), seeds=(0,))
        rows = ask(question, tmp_path / f"{name}.sqlite", tmp_path)
        found = {row.entry: row.provenance.commit for row in rows}
        expected = dict.fromkeys(("softmax", "no mixing", "the bag"), head)
        assert found == expected | dict.fromkeys(("", "base:Base"), entry.commit)
        with nullcontext() if clean else pytest.raises(ExperimentError, match="law 9"):
            laws.check(replace(TINY, entries=(*TINY.entries, entry)), lambda task: task.load())


def test_what_has_no_file_is_refused():
    scope = {"__name__": "nowhere"}
    exec("from regard.mixers import Linear\nclass Mine(Linear): pass", scope)
    with pytest.raises(OptionError, match="nowhere:Mine cannot be measured: it is in no file"):
        Entry(mixer=scope["Mine"])
