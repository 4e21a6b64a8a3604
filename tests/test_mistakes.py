"""Mistakes that people make: each is answered in one line that names it and says what to do instead."""

import pytest
import torch

import regard
from regard.cli import main
from regard.core import OLDEST_TORCH
from regard.core.packages import lacking_extra, require_torch

X = torch.zeros(2, 5, 8)
build = regard.build


def linear(x=X, **mask):
    return build("linear", dim=8, num_heads=2)(x, mask=regard.Mask(**mask))


def linformer(length):
    return build("linformer", dim=8, num_heads=2, max_len=4)(torch.zeros(1, length, 8))


class Undeclared(regard.Mixer):
    name = "undeclared"

    def mix(self, x, context, mask):
        return x


IN_PYTHON = {
    "a mechanism's name": (lambda: build("liner", dim=8), "Did you mean 'linear'?"),
    "an option's name": (
        lambda: build("local", dim=8, num_heads=2, window=3),
        "Did you mean 'window_size'?",
    ),
    "an option's value": (
        lambda: build("local", dim=8, num_heads=2, window_size=0),
        "must be a positive integer",
    ),
    "heads that do not divide": (
        lambda: build("softmax", dim=65, num_heads=8),
        "must be divisible by num_heads (8)",
    ),
    "heads forgotten": (lambda: build("softmax", dim=8), "pass num_heads="),
    "max_len forgotten": (lambda: build("bigbird", dim=8, num_heads=2), "pass max_len="),
    "token ids": (lambda: linear(torch.zeros(2, 5, 8, dtype=torch.long)), "Embed token ids first"),
    "the wrong width": (
        lambda: linear(torch.zeros(2, 5, 9)),
        "must have shape [B, T, 8], got [2, 5, 9]",
    ),
    "no batch": (lambda: linear(torch.zeros(5, 8)), "must have shape [B, T, 8], got [5, 8]"),
    "no tokens": (lambda: linear(torch.zeros(2, 0, 8)), "must hold at least one token"),
    "an array": (lambda: linear(X.numpy()), "must be a tensor [B, T, 8], got ndarray"),
    "another dtype": (lambda: linear(X.double()), "Convert one, or use autocast"),
    "another device": (lambda: linear(X.to("meta")), "Move one of them"),
    "a mask of numbers": (
        lambda: linear(valid=torch.ones(2, 5)),
        "must be a boolean tensor (True = may take part)",
    ),
    "a mask of lists": (lambda: regard.Mask(valid=[True]), "must be a boolean tensor"),
    "a mask of another length": (
        lambda: linear(valid=torch.ones(2, 4, dtype=torch.bool)),
        "must have shape [2, 5], got [2, 4]",
    ),
    "a tensor as the mask": (
        lambda: build("linear", dim=8, num_heads=2)(X, mask=torch.ones(2, 5, dtype=torch.bool)),
        "Mask(valid=...)?",
    ),
    "pairs taken from sums": (
        lambda: linear(pairwise=torch.ones(1, 1, 5, 5, dtype=torch.bool)),
        "Mixers that do: ",
    ),
    "causal where it cannot be": (
        lambda: build("fnet", dim=8)(X, mask=regard.Mask(causal=True)),
        "Mixers that do: ",
    ),
    "too long": (lambda: linformer(5), "exceeds max_len (4)"),
    "a state of another mixer": (
        lambda: build("local", dim=8, num_heads=2).extend(
            X, build("linear", dim=8, num_heads=2).initial_state(2)
        ),
        "got one of linear",
    ),
    "a module in the place of a name": (
        lambda: build(build("linear", dim=8, num_heads=2), dim=8),
        "a Linear is not a mixer: pass a name",
    ),
    "a tensor in the place of its size": (
        lambda: build("linear", dim=8, num_heads=2).initial_state(X),
        "batch_size (a tensor [2, 5, 8]",
    ),
    "one map in the place of a list": (
        lambda: regard.explore.rollout(X.softmax(-1)),
        "must be a sequence of dense float tensors [B H T T]",
    ),
    "a name of the package": (lambda: regard.MIXER, "Did you mean 'MIXERS'?"),
    "a class without capabilities": (
        lambda: build(Undeclared, dim=8),
        "Undeclared has no capabilities: declare it in the class",
    ),
    "a module in the place of its class": (
        lambda: regard.models.LanguageModelConfig(
            vocab_size=9, mixer=build("linear", dim=8, num_heads=2)
        ),
        "mixer (a Linear) must be a name",
    ),
    "an old torch": (
        lambda: require_torch("2.5.1+cu121", OLDEST_TORCH),
        "here is 2.5.1+cu121: pip install 'torch>=2.10'",
    ),
}
ON_THE_COMMAND_LINE = {
    "a command's name": ("trian digits", "Did you mean 'train'?"),
    "a task's name to train": ("train digts", "Did you mean 'digits'?"),
    "an option of a mechanism": (
        "bench --mixers fnet --options widow=3",
        "none of fnet has an option 'widow'",
    ),
    "commas between names": ("bench --mixers fnet,linear", "separated by spaces: fnet linear"),
    "a file in the place of a class": ("laws mine", "is written mine:Class"),
    "a class after a dot": ("laws mine.Mine", "is written mine:Class"),
    "the ending of a file": ("laws mine.py:Mine", "Write mine:Mine"),
    "a text that is not there": (
        "arena --task own_text --task-options path=nowhere.txt",
        "nowhere.txt",
    ),
    "an empty text": ("arena --task own_text --task-options path=mine.py", "the 0 bytes"),
    "a folder in the place of a text": (
        "arena --task own_text --task-options path=.",
        ". is a folder",
    ),
    "an option without a value": ("train digits --model.mixer-options widow", "NAME=VALUE"),
    "a path that is not there": (
        "report --ledger nowhere.sqlite",
        "`regard arena` makes one",
    ),
    "a size that is none": (
        "recommend --length 100 --memory plenty",
        "must be a size such as 500MB or 2GiB",
    ),
    "a module that is not here": ("laws nowhere:Mine", "there is no module 'nowhere' here"),
    "a module with a mistake": ("laws broken:Mine", "broken.py, line 2: "),
    "a module of no name": ("laws :Mine", "is written module:Class"),
    "a path in the place of a module": ("laws ./mine.py:Mine", "is written module:Class"),
    "commas between numbers": ("arena --seeds 0,1", "INT INT ... (separated by spaces)"),
    "a number in words": ("bench --lengths 1kk", "1kk"),
    "an option's name on the line": ("train digits --train.ler 1", "--train.lr FLOAT"),
    "a value forgotten": ("train digits --train.lr", "Missing value for argument '--train.lr'"),
    "an option forgotten": ("recommend", "--length TOKENS tokens"),
    "a name forgotten": ("train", "a name of `regard ls tasks`"),
    "a choice that is none": ("bench --causal maybe", "'either', 'yes', 'no'"),
    "a negative rate": ("arena --rates -1", "rates ((-1.0,)) must be"),
    "a negative seed": ("arena --seeds -1", "seeds ((-1,)) must be"),
    "no seconds": ("bench --seconds 0", "seconds (0.0) must be greater than 0"),
    "a length that is none": ("recommend --length 99999999999", "of at most 2147483647"),
    "a rate of nothing": ("convert bert linear --lr 0", "lr (0.0) must be greater than 0"),
    "steps back": ("convert bert linear --steps -1", "steps (-1) must be an integer of at least 0"),
    "a function with arguments": ("train theirs:needy", "is not a function without arguments"),
    "more rows than there are": (
        "train own_table --task.path few.csv --task.target bought",
        "Choose a smaller batch_size",
    ),
    "a column's name": (
        "train own_table --task.path few.csv --task.target bougt",
        "Did you mean 'bought'?",
    ),
    "a table without a head": (
        "train own_table --task.path headless.csv --task.target bought",
        "Known: 1, 2",
    ),
    "nothing to merge": ("merge a.sqlite", "name the ledgers"),
    "no GPU": ("bench --mixers fnet --devices cuda:7", "`regard doctor` lists what can"),
}


def test_there_are_thirty():
    assert len(IN_PYTHON) + len(ON_THE_COMMAND_LINE) >= 30


@pytest.mark.parametrize("mistake", IN_PYTHON)
def test_a_mistake_in_python_is_answered_in_one_line(mistake):
    made, fix = IN_PYTHON[mistake]
    with pytest.raises((regard.RegardError, AttributeError, ImportError)) as refused:
        made()
    assert fix in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("mistake", ON_THE_COMMAND_LINE)
def test_a_mistake_on_the_command_line_is_answered_in_one_line(
    mistake, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    (tmp_path / "theirs.py").write_text("def needy(x): pass\n")
    (tmp_path / "few.csv").write_text("age,bought\n" + "30,0\n40,1\n" * 5)
    (tmp_path / "headless.csv").write_text("1,2\n3,4\n")
    (tmp_path / "broken.py").write_text("import torch\nclass Mine(:\n")
    line, fix = ON_THE_COMMAND_LINE[mistake]
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in err and out == ""
    last = err.splitlines()[-1]  # progress may come before
    assert last.startswith("regard: ") and fix in last


def test_a_missing_extra_is_named():
    assert lacking_extra(ModuleNotFoundError(name="altair")) == (
        "altair, which is not installed: pip install 'regard[lab]'"
    )
