"""Mistakes that people make: each is answered in one line that names it and says what to do instead."""

import pytest
import torch

import regard
from regard.cli import main
from regard.core.packages import require_torch
from regard.models import ClassifierConfig, LanguageModelConfig

X = torch.zeros(2, 5, 8)
build = regard.build


def linear(x=X, **mask):
    return build("linear", dim=8, num_heads=2)(x, mask=regard.Mask(**mask))


class Undeclared(regard.Mixer):
    name = "undeclared"

    def mix(self, x, context, mask):
        return x


class Unwritten(regard.Mixer):
    name, capabilities = "unwritten", regard.MIXERS["linear"].capabilities


def built(name="linear", **options):
    return build(name, **{"dim": 8, "num_heads": 2} | options)


NUMBERS = torch.ones(2, 5)
IN_PYTHON = {
    "Did you mean 'window_size'?": lambda: built("local", window=3),
    "must be a positive integer": lambda: built("local", window_size=0),
    "must be divisible by num_heads (8)": lambda: build("softmax", dim=65, num_heads=8),
    "pass max_len=": lambda: built("bigbird"),
    "Embed token ids first": lambda: linear(X.long()),
    "must have shape [B, T, 8], got [5, 8]": lambda: linear(X[0]),
    "must be a tensor [B, T, 8], got ndarray": lambda: linear(X.numpy()),
    "Convert one, or use autocast": lambda: linear(X.double()),
    "Move one of them": lambda: linear(X.to("meta")),
    "must be a boolean tensor (True = may take part), got": lambda: linear(valid=NUMBERS),
    "valid must be a boolean tensor": lambda: regard.Mask(valid=[True]),
    "Mask(valid=...)?": lambda: built()(X, mask=NUMBERS.bool()),
    "a Linear is not a mixer: pass a name": lambda: build(built(), dim=8),
    "batch_size (a tensor [2, 5, 8]": lambda: built().initial_state(X),
    "must be a sequence of dense float tensors [B H T T]": lambda: regard.explore.rollout(X),
    "Did you mean 'MIXERS'?": lambda: regard.MIXER,
    "Undeclared has no capabilities: declare it in the class": lambda: build(Undeclared, dim=8),
    "Unwritten has no mix: declare it in the class": lambda: ClassifierConfig(
        vocab_size=9, num_classes=2, dim=8, num_heads=2, mixer=Unwritten
    ),
    "mixer (a Linear) must be a name": lambda: LanguageModelConfig(vocab_size=9, mixer=built()),
    "here is 2.5.1+cu121: pip install 'torch>=2.10'": lambda: require_torch("2.5.1+cu121"),
}
"""What is said -> the mistake."""
OWN_TABLE = "train own_table --task.path few.csv --task.target"
ON_THE_COMMAND_LINE = {
    "trian digits": "Did you mean 'train'?",
    "train speed/softmax": "unknown column of speed",
    "train digts": "unknown task 'digts'. Did you mean 'digits'?",
    "bench --mixers fnet --options widow=3": "none of fnet has an option 'widow'",
    "bench --mixers fnet,linear": "separated by spaces: fnet linear",
    "laws mine": "is written mine:Class",
    "laws mine.Mine": "is written mine:Class",
    "laws mine.py:Mine": "Write mine:Mine",
    "arena --task own_text --task-options path=nowhere.txt": "nowhere.txt",
    "arena --task own_text --task-options path=mine.py": "the 0 bytes",
    "arena --task own_text --task-options path=.": ". is a folder",
    "train digits --model.mixer-options widow": "NAME=VALUE",
    "report --ledger nowhere.sqlite": "no ledger at nowhere.sqlite. `regard arena` makes one",
    "recommend --length 100 --memory plenty": "must be a size such as 500MB or 2GiB",
    "laws nowhere:Mine": "there is no module 'nowhere' here",
    "arena --seeds 0,1": "INT INT ... (separated by spaces)",
    "train digits --train.ler 1": "--train.lr FLOAT",
    "train digits --train.lr": "Missing value for argument '--train.lr'",
    "recommend": "--length TOKENS tokens",
    "train": "a name of `regard ls tasks`",
    "bench --causal maybe": "'either', 'yes', 'no'",
    "arena --seeds -1": "seeds ((-1,)) must be",
    "recommend --length 99999999999": "of at most 2147483647",
    "convert bert linear --lr 0": "lr (0.0) must be greater than 0",
    "train theirs:needy": "is not a function without arguments",
    f"{OWN_TABLE} bought": "Choose a smaller batch_size",
    f"{OWN_TABLE} bougt": "Did you mean 'bought'?",
    "train own_table --task.path headless.csv --task.target bought": "Known: 1, 2",
    "merge a.sqlite": "name the ledgers",
    "bench --mixers fnet --devices cuda:7": "`regard doctor` lists what can",
    "ls mixrs": "unknown kind 'mixrs'. Did you mean 'mixers'?",
    "show liner": "unknown name 'liner'. Did you mean 'linear'?",
    "ls --jsn": "--json",
    "train recall --model.mixer-options num_kv_head=2": "Did you mean 'num_kv_heads'?",
    "train recall --model.mixer-options shared_qk=false": "softmax: shared_qk ('false') must be True or False",
    "bench --lengths 0": "lengths ((0,)) must be a tuple of positive integers",
    "bench --lengths many": "--lengths: cannot read ['many']",
    "recommend --length 8kk": "'8kk' is no number such as 4096, 8k or 2Ki",
    "recommend --length 8 --task lokup": "unknown trained column 'lokup'",
    "bench --passes forwrd": "'forward'",
    "bench --devices tpuu": "device",
    "train digits --model.mixer linaer": "unknown mixer 'linaer'. Did you mean 'linear'?",
    "train digits --task.test-size 5": "test_size (5) must be at least 10",
    "train digits --report-to wandbb": "Expected one of ('wandb', 'mlflow')",
    "train digits --train.lr -1": "TrainConfig: lr (-1.0) must be greater than 0",
    "train digits --model.max-len 63": "model.max_len (63) is below",
    "train digits --model.num-classes 11": "model.num_classes is 11",
    "laws linear --law pading": "unknown law 'pading'. Did you mean 'padding'?",
    "laws regard.core:Mask": "'Mask' in regard.core is not a subclass of regard.Mixer",
    "arena fingerprnt": "unknown question 'fingerprnt'. Did you mean 'fingerprint'?",
    "data get": "name the sources, or say --all-open",
    "data get shakespear": "unknown source 'shakespear'. Did you mean 'shakespeare'?",
    "data get movielens_1m": "`regard data get movielens_1m --accept-licence`",
    "data get shakespeare movielens_1m": "movielens_1m is not open",  # before anything is fetched
    "data show table": "table is a format of your own files: add --path PATH, a .csv or .tsv",
    "data show table --path /nowhere": "there is no /nowhere. Expected: a .csv or",
    "data show tabel --path /nowhere": "unknown format 'tabel'. Did you mean 'table'?",
}


@pytest.mark.parametrize("mistake", IN_PYTHON)
def test_a_mistake_in_python_is_answered_in_one_line(mistake):
    with pytest.raises((regard.RegardError, AttributeError, ImportError)) as refused:
        IN_PYTHON[mistake]()
    assert mistake in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("mistake", ON_THE_COMMAND_LINE)
def test_a_mistake_in_a_command_is_answered_in_one_line(mistake, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    (tmp_path / "mine.py").touch()
    (tmp_path / "theirs.py").write_text("def needy(x): pass\n")
    (tmp_path / "few.csv").write_text("age,bought\n" + "30,0\n40,1\n" * 20)
    (tmp_path / "headless.csv").write_text("1,2\n3,4\n")
    before = sorted(tmp_path.iterdir())
    assert main(mistake.split()) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in err and out == ""
    last = err.splitlines()[-1]  # progress may come before
    assert last.startswith("regard: ") and ON_THE_COMMAND_LINE[mistake] in last
    if "own_" not in mistake:  # the folder of a run is made before own data are read
        left = [path for path in sorted(tmp_path.iterdir()) if path.name != "__pycache__"]
        assert left == before
