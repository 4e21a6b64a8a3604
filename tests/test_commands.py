"""docs/commands.md: every line is typed at small size, from top to bottom, and prints what the page says that it prints."""

import doctest
import re
import shlex

from regard.cli import main
from regard.cli.commands import CLASSES
from regard.cli.data import Data
from regard.lab.experiment import mechanism_laws as laws
from tests.hf.test_cli import TEXT, folders  # noqa: F401
from tests.packaging import ROOT

PAGE = (ROOT / "docs/commands.md").read_text()
SHOWN = re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S)
TYPED = re.findall(r"^\$ regard (.*)\n((?:(?!\$ ).*\n)*)", "".join(SHOWN), re.M)
OPTIONS = "--task.length 16 --task.valid-size 2 --task.test-size 2 --model.dim 8 --model.max-len 16"
SMALL = {
    "bench": "--dim 8 --num-heads 2 --seconds 0.01",
    "train": f"{OPTIONS} --train.steps 2 --train.eval-every 1 --train.batch-size 8",
    "arena": "--task-options path=novel.txt length=16 valid_size=2 test_size=2 --tokens 100 --dim 8 --lengths 16 --workers 1",
    "convert": "--steps 2 --whole-steps 1 --length 12 --batch-size 4",
}
"""Command -> what makes it small; the last of two options counts."""


def test_every_command_has_a_line():
    data = {f"data {name}" for name in re.findall(r"name='(\w+)'", str(Data.__annotations__))}
    assert len(data) == 3
    two = {" ".join(line.split()[:2]) for line, _ in TYPED}
    assert {line.split()[0] for line in two} == set(CLASSES) and data <= two
    titles = re.findall(r"^## `regard (\w+)`$", PAGE, re.M)
    assert titles == [*dict.fromkeys(line.split()[0] for line, _ in TYPED)]


def test_every_line_prints_what_the_page_says(folders, capsys, monkeypatch):  # noqa: F811
    (folders / "bert").rename("encoder")
    # Minutes, and not what is shown.
    monkeypatch.setattr(laws, "check_mixer", lambda factory, **_: ["all"])
    same = doctest.OutputChecker().check_output
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    wrong = {}
    for line, printed in TYPED:
        command = line.split()[0]
        assert main([*shlex.split(line), *SMALL.get(command, "").split()]) == 0, line
        out = re.sub("─+", "───", capsys.readouterr().out).strip()
        want = re.sub("─+", "───", printed).replace("───...", "───").strip()
        if not same(want, out, flags):
            wrong[line] = out
    assert not wrong, "\n".join(f"regard {line}\n{out}" for line, out in wrong.items())
