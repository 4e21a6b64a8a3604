"""One's own mixers, pools, tasks, questions and runs on the command line, as `module:Class`, from the current folder."""

import json
import sys
from pathlib import Path

import pytest

import regard.lab.tasks
import regard.lab.train
import regard.models
import regard.pools  # noqa: F401
from regard.cli.arena import Arena
from regard.cli.names import run as trained
from regard.cli.recommend import _said
from regard.core import OptionError, UnknownNameError
from regard.lab.experiment import mechanism_laws as laws
from regard.lab.growth import Estimate
from tests.command import loaded, ran, refused

MINE = '''
"""Mine: y_t = (x_t + x_{t-1}) / 2."""

from dataclasses import dataclass

from regard.lab import Column, Entry, Question, Setting, Shell
from regard.lab.train import Run
from regard.lab.tasks import ListOps, Task
from regard.lab.train import TrainConfig
from regard.mixers.fnet import FNet
from regard.models import Classifier, ClassifierConfig
from regard.pools.context_query import ContextQuery

class Mine(FNet):
    """Nothing like it."""

    name = "mine"
    variants = {}

class Lake(ContextQuery):
    """A pool."""

    name = "lake"

class Model(Classifier):
    """A model."""

class Sums(ListOps):
    """A task."""

    name = "sums"
    train_size: int = 32
    valid_size: int = 4
    test_size: int = 4
    min_length: int = 5
    max_length: int = 20

class Unread(Task):
    """A task without data."""

    name, kind = "unread", "classify"

TRAIN = TrainConfig(steps=2, batch_size=4, eval_every=1, checkpoint_every=1, log_dir=None)
QUESTION = Question(
    name="own",
    about="a test",
    entries=(Entry(mixer="softmax"), Entry(mixer=Mine)),
    vary=(
        Setting(kind="forward", length=8, dim=16, num_heads=2, seconds=0.01),
        Column(name="sums", task=Sums(), train=TRAIN, shell=Shell(dim=16, num_heads=2)),
    ),
    seeds=(0,),
)

def sums() -> Run:
    task = Sums()
    model = ClassifierConfig(**task.facts, max_len=task.max_len, dim=16, num_heads=2)
    return Run(task=task, model=model, train=TRAIN)

def nothing():
    return 3

def zeros(params, options, x, **request):
    return 0 * x, None
'''


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(laws, "check_mixer", lambda factory, **_: ["all"])
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "foreign.py").write_text(FOREIGN)
    for when in ("before", "after"):
        for name in ("mine", "foreign"):  # of another test
            sys.modules.pop(name, None)
        if when == "before":
            yield


def test_show(capsys):
    kinds = dict(Mine="mixer", Lake="pool", Model="model", Sums="task", QUESTION="question")
    for name, kind in kinds.items():
        (about,) = loaded(capsys, f"show mine:{name}")
        assert about["kind"] == kind
        assert ran(capsys, f"show mine:{name}")[0] == 0


def test_laws_of_a_pool_and_beside_a_slow_reference(capsys):
    found = {row["law"]: row["verdict"] for row in loaded(capsys, "laws mine:Lake")}
    assert found["padding"] == found["batch"] == "passed"
    asked = "laws mine:Mine --law reference"
    assert loaded(capsys, asked)[0]["verdict"] == "cannot judge"
    code, out, _ = ran(capsys, f"{asked} --oracle mine:zeros")
    assert code == 1 and "failed" in out and "output" in out


def test_bench(capsys):
    line = "bench --mixers mine:Mine softmax --lengths 8 --passes forward --dim 16 --num-heads 2"
    found = loaded(capsys, f"{line} --seconds 0.01")
    assert [row["mixer"] for row in found["timed"]] == ["mine:Mine", "softmax"]


@pytest.mark.parametrize("run", ["sums --model.mixer mine:Mine", "QUESTION/softmax/sums"])
def test_train_a_run_or_an_entry_of_a_question(capsys, run):
    assert loaded(capsys, f"train mine:{run}")["steps"] == 2


def test_an_entry_is_known_by_its_label_before_its_name():
    assert trained("questions.parity:QUESTION/softmax").model.position == "none"  # not ALiBi's
    with pytest.raises(UnknownNameError, match="'local'"):
        trained("questions.reach:QUESTION/local")
    with pytest.raises(OptionError, match="is trained on bytes first first"):
        trained("questions.transfer:QUESTION/softmax, bytes first")


def rows_of(capsys, line: str) -> tuple[dict, dict]:
    """What the arena counts, and the question as it is told afterwards."""
    counts = loaded(capsys, f"{line} --workers 1")
    return counts, loaded(capsys, f"report --ledger {counts['ledger']}")["questions"][0]


def test_arena_takes_a_question_and_parts_of_it(capsys):
    _, told = rows_of(capsys, "arena mine:QUESTION")
    labels = {row["entry"] for row in told["rows"] if not row["line"]}
    assert told["name"] == "own" and labels == {"softmax", "mine:Mine"}
    assert all(row["cells"]["sums"]["values"] for row in told["rows"])
    assert rows_of(capsys, "arena mine:QUESTION")[0]["new"] == 0
    line = "arena mine:QUESTION --mixers fnet mine:Mine --lengths 8 16 --seeds 1 --dim 8"
    _, told = rows_of(capsys, line)
    rows = [row for row in told["rows"] if not row["line"]]
    assert {row["entry"] for row in rows} == {"fnet", "mine:Mine"}
    sizes = {(one["length"], one["dim"]) for one in told["columns"] if one["kind"] == "timed"}
    assert sizes == {(8, 8), (16, 8)}
    assert {seed for row in rows for seed in row["cells"]["sums"]["seeds"]} == {1}


def test_lengths_and_mixers_replace_one_part_alone_and_a_width_those_of_shells_too():
    asked = Arena(question="speed", lengths=(512,))._question()
    assert [one.name for one in asked.timed] == ["forward 512", "train 512", "decode 512"]
    parts = {"mixers": ("local", "fnet"), "task": "recall"}
    asked = Arena(question="questions.reach:QUESTION", **parts)._question()
    assert [one.label for one in asked.entries] == ["local, window 4", "local, window 8", "fnet"]
    asked = Arena(question="questions.hybrids:QUESTION", dim=16)._question()
    assert [shell.dim for shell in asked.shells] == [16, 16]


def test_arena_takes_a_task_with_options(capsys):
    line = "arena mine:QUESTION --task mine:Sums --task-options max_length=12 --tokens 60"
    _, told = rows_of(capsys, line)
    (column,) = (one for one in told["columns"] if one["kind"] == "trained")
    assert (column["length"], column["task"], told["kind"]) == (11, "sums", "screen")


def test_the_arena_ends_in_time_and_goes_on(capsys):
    early, _ = rows_of(capsys, "arena mine:QUESTION --hours 1e-9")
    assert early["new"] == 0 and early["left"] > 4  # a law, a timing, four trainings
    late, _ = rows_of(capsys, "arena mine:QUESTION --hours 1")
    assert late["left"] == 0 and late["new"] > 4


WRONG = {
    "show mine:Mihne": "unknown name in mine 'Mihne'. Did you mean 'Mine'?",
    "show mine:TRAIN": "'TRAIN' in mine is not a subclass of regard.Mixer, nor",
    "laws mine:Sums": "is not a subclass of regard.Mixer, nor a subclass of regard.core.pool.Pool",
    "laws mine:Mine --law reference --oracle mine:QUESTION": "--oracle mine:QUESTION must be a function",
    "bench --mixers mine:Lake": "'Lake' in mine is not a subclass of regard.Mixer",
    "train mine:nothing": "mine:nothing returned int, and not a Run",
    "train mine:sums --model.mixer mine:Lake": "'Lake' in mine is not a subclass of regard.Mixer",
    "train mine:QUESTION/softmax/sum": "Did you mean 'sums'?",
    "train mine:QUESTION/softmx": "Did you mean 'softmax'?",
    "train mine:QUESTION/softmax/sums/x": "unknown column of own 'sums/x'",
    "arena mine:Mine": "'Mine' in mine is not an instance of regard.lab.Question",
    "arena mine:Question": "'Question' in mine is not an instance of regard.lab.Question",
    "show mine:Question": "nor an instance of regard.lab.Question",
    "arena mine:QUESTION --task sums": "unknown task 'sums'",
    "arena mine:QUESTION --task mine:Sums --task-options max_lenth=12": "Did you mean 'max_length'?",
    "arena mine:QUESTION --task mine:Unread": "Unread has no load: declare it in the class",
    "arena mine:QUESTION --task-options max_length=12": "name it",
    "arena mine:QUESTION --hours 0": "hours (0.0) must be greater than 0",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_is_named(capsys, line):
    assert WRONG[line] in refused(capsys, line)


def files():
    """The files of the guide's examples, in the current folder."""
    reviews = "".join(f"review {i} is {'good' if i % 2 else 'bad'},{i % 2}\n" for i in range(80))
    Path("reviews.csv").write_text("text,label\n" + reviews)
    Path("novel.txt").write_text("It was a dark and stormy night. " * 300)
    Path("pairs").mkdir()
    for side in ("en", "de"):
        lines = [f"{side} {i} {i % 7}" for i in range(400)]
        Path(f"pairs/train.{side}").write_text("\n".join(lines))
    table = "".join(f"{i % 60},{'ab'[i % 2]},{int(i % 60 > 30)}\n" for i in range(300))
    Path("customers.csv").write_text("age,group_of,bought\n" + table)


TASKS = {
    "labelled_texts": "path=reviews.csv length=16",
    "own_text": "path=novel.txt length=16 valid_size=2 test_size=2",
    "text_files": "path=pairs source_len=8 target_len=8 vocab_size=300 valid_size=4 test_size=4 metric=bits_per_byte",
    "own_table": "path=customers.csv target=bought",
}


@pytest.mark.parametrize("task", TASKS)
def test_the_arena_trains_on_ones_own_files(capsys, task):
    files()
    line = f"arena mine:QUESTION --mixers softmax --task {task} --task-options {TASKS[task]}"
    _, told = rows_of(capsys, f"{line} --tokens 100 --dim 8")
    name = TASKS[task].partition(" ")[0].removeprefix("path=")
    places = [", encoder", ", decoder", ", cross"] if task == "text_files" else [""]
    columns = [one["name"] for one in told["columns"] if one["kind"] == "trained"]
    assert columns == [f"{task} ({name}){place}" for place in places]
    cells = [row["cells"][one] for row in told["rows"] for one in columns if one in row["cells"]]
    assert cells and all(cell["steps"] or cell["reason"] for cell in cells)
    Path("elsewhere").mkdir()
    Path(name).rename(Path("elsewhere") / name)
    moved = line.replace("path=", "path=elsewhere/")
    assert rows_of(capsys, f"{moved} --tokens 100 --dim 8")[0]["new"] == 0


def test_an_estimate_is_said_with_its_bounds():
    cases = {(120, 0.5): "~120 (73 to 200)", (3, None): "~3 (error unknown)", (3, 0.0): "~3"}
    for (value, error), text in cases.items():
        assert _said(Estimate(value * 1e6, error, False), 1e6) == text


def test_recommend_takes_a_mixer_and_the_ledger(capsys):
    line = "recommend --length 16 --mixers mine:Mine --memory 2GiB"
    found = loaded(capsys, line)
    assert found["case"]["memory"] == 2 * 2**30 and found["choice"] == "softmax"
    assert "mine:Mine" in {row["mechanism"] for row in found["ranked"]}
    assert "does not support causal" in loaded(capsys, f"{line} --causal")["excluded"]["mine:Mine"]
    assert ran(capsys, "arena mine:QUESTION --mixers softmax mine:Mine --workers 1")[0] == 0
    code, out, _ = ran(capsys, f"{line} --task sums")
    assert code == 0 and out.startswith("Nothing that can do this has reached sums")
    rows = loaded(capsys, f"{line} --task sums")["ranked"]
    (mine,) = (row for row in rows if row["mechanism"] == "mine:Mine")
    assert mine["ratio"]["error"] is None and list(mine["quality"]) == ["sums"]


FOREIGN = '''
import sys

from regard import Mixer

from regard.mixers.fnet import FNet
from regard.mixers.local import Local

class Narrow(Local):
    """Fewer options than its parent."""

    name = "narrow"

    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads)

class Bare(Mixer):
    """It declares nothing."""

class Mute(Exception):
    def __str__(self):
        raise TypeError("no text")
'''
BUILD, MIX = "__init__(self, dim)", "mix(self, x, context, mask)"
ODD = {
    "Raises": (BUILD, 'raise RuntimeError("\\x1b[31mno\\nsecond line")'),
    "Exits": (BUILD, "sys.exit(3)"),
    "MuteLater": (BUILD, "raise Mute()"),
    "Idle": (BUILD, "pass"),
    "Waits": (BUILD, "while True: pass"),
    "ExitsLater": (MIX, "exit(4)"),
    "WaitsLater": (MIX, "while True: pass"),
}
for _name, (_method, _body) in ODD.items():
    FOREIGN += f'''
class {_name}(FNet):
    name, variants = "{_name.lower()}", {{}}

    def {_method}:
        {_body}
'''
SHORT = 2  # seconds; what foreign.py and mine.py import is imported above
BENCH = "bench --lengths 8 --passes forward --dim 16 --num-heads 2 --seconds 0.01 --mixers"
ARENA = "arena mine:QUESTION --workers 1 --mixers softmax"
ERRORS = {"Raises": "RuntimeError", "Exits": "SystemExit", "Waits": "TimeoutError"}
ERRORS |= {"MuteLater": "Mute"}


@pytest.mark.parametrize("command", ["laws", BENCH, ARENA])
@pytest.mark.parametrize("name", ERRORS)
def test_a_class_that_cannot_be_built_is_named_with_its_line(capsys, monkeypatch, command, name):
    if name == "Waits":
        monkeypatch.setattr("regard.core.errors.LIMIT", SHORT)
    code, out, err = ran(capsys, f"{command} foreign:{name}")
    said = err.splitlines()[-1]  # the arena shows how far it is
    assert code == 2 and out == "" and "Traceback" not in err
    assert f"regard: {ERRORS[name]} in " in said and "\x1b" not in said
    at = int(said.partition("foreign.py, line ")[2].partition(":")[0])
    assert ODD[name][1] in FOREIGN.splitlines()[at - 1]


@pytest.mark.parametrize("name", ["ExitsLater", "WaitsLater"])
def test_a_law_says_which_line_of_ones_own_does_not_return(capsys, monkeypatch, name):
    monkeypatch.setattr("regard.core.errors.LIMIT", SHORT)
    code, out, _ = ran(capsys, f"laws foreign:{name} --law batch lengths --json")
    rows = json.loads(out)
    assert code == 1 and all("foreign.py, line " in row["why"] for row in rows)
    assert len(rows) == (1 if name == "WaitsLater" else 2)  # after one that never ends none is run


@pytest.mark.parametrize("text", ["raise ValueError('no')", "import sys\nsys.exit(3)", "x = 1 +"])
def test_a_module_that_cannot_be_imported_is_named_with_its_line(capsys, tmp_path, text):
    (tmp_path / "foreign.py").write_text(text)
    line = len(text.splitlines())
    for command in ("show", "laws", BENCH, ARENA):
        assert f"foreign.py, line {line}: " in refused(capsys, f"{command} foreign:Mine")


def test_a_module_that_never_ends_is_named_with_its_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.core.errors.LIMIT", SHORT)
    (tmp_path / "foreign.py").write_text("while True:\n    pass\n")
    said = refused(capsys, "show foreign:Mine")
    assert "TimeoutError in " in said and f"had not ended after {SHORT} s" in said


def test_a_subclass_is_told_what_it_inherits(capsys):
    said = refused(capsys, "laws foreign:Narrow")
    assert "Narrow inherits the variant 'narrow'" in said and "variants = {}, limits = {}" in said
    assert "Bare has no name: declare it in the class" in refused(capsys, "show foreign:Bare")
    assert "does not call super().__init__" in refused(capsys, "laws foreign:Idle --law batch")
