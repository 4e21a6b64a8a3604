"""A comparison of a second or two, and rows of it made up where the truth must be known."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

from regard.lab import Claim, Column, Entry, Question, Shell, above, ask
from regard.lab.experiment import provenance
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.results import Results
from regard.lab.experiment.row import Provenance, Row
from regard.lab.tasks import TextFiles, language_models
from regard.lab.tasks.fingerprint import Address
from regard.lab.train.short import Short

WHERE = Provenance(
    commit="0123456789ab", command="regard arena", device="AMD EPYC 7B13, 2 threads", threads=2, dtype="float32",
    versions={"python": "3.11.7", "torch": "2.13.0", "regard": "0.1.0"}, started="2026-01-05T10:00:00Z",
)  # fmt: skip
TASK = Address(train_size=64, valid_size=8, test_size=20)
SHELL = Shell(dim=16, num_heads=2, num_layers=1, position="learned")
COLUMN = Column(name="address", task=TASK, train=Short(steps=2, batch_size=8), shell=SHELL)
LOCAL = Entry(mixer="local", options={"window_size": 4})
CLAIM = Claim(
    text="Full attention goes further than a window.",
    source="nobody",
    smallest=0.02,
    expected=(above("softmax", "local, window 4"),),
)
TINY = Question(
    name="tiny",
    about="Does a window reach as far?",
    kind="comparison",
    entries=(Entry(mixer="softmax"), LOCAL),
    vary=(COLUMN,),
    shells=(SHELL, replace(SHELL, position="sinusoidal")),
    rates=(1e-3, 1e-2),
    claims=(CLAIM,),
    limits=("It is tiny.",),
)
SCREEN = replace(TINY, name="screen", kind="screen", claims=(), shells=(), seeds=(0, 1))
GOOD = (0.90, 0.85, 0.95, 0.90, 0.85, 0.95, 0.90, 0.90)
FAIR = (0.60, 0.55, 0.60, 0.65, 0.60, 0.55, 0.60, 0.60)
LINE = (0.10, 0.15, 0.10, 0.10, 0.15, 0.10, 0.10, 0.10)


def clean():
    """As if the working tree had no changes."""
    return mock.patch.object(provenance, "commit", lambda *_: "0123456789ab")


def few_modules(monkeypatch):
    """A small library in the place of Python's, for tasks that read its source."""
    modules = {f"m{n}": f"def f{n}(x):\n    return x + {n}\n".encode() * 9 for n in range(40)}
    monkeypatch.setattr(language_models, "read_modules", lambda root: modules)


def few_pairs(folder):
    """A task of some sentences, written into the folder."""
    words = [f"the {a} {b} sleeps\n" for a in ("big", "old", "red") for b in "abcdefghijklmnop"]
    for name in ("train.en", "train.xx"):
        (folder / name).write_text("".join(words))
    sizes = {"vocab_size": 300, "valid_size": 16, "test_size": 16}
    return TextFiles(path=folder, metric="bits_per_byte", **sizes)


def asked(question: Question, ledger: Ledger, folder: Path) -> Row:
    """The record of the question, of which nothing was run."""
    with clean():
        return [row for row in ask(question, ledger, folder, hours=1e-9) if row.kind == "asked"][-1]


def cells(record: Row) -> dict[str, str]:
    return {label: cell for label, name, cell, *_ in record.config["cells"] if name == "address"}


def made_up(record: Row, label: str, values, *, rate=1e-2, items=20, started=None, **fields):
    """Rows of an entry as if trained from seeds 0, 1 ..., with items that are right or wrong, at a rate whose neighbours are worse."""
    about = replace(record.provenance, started=started or record.provenance.started)
    made = []
    for seed, value in enumerate(values):
        right = 0 if value is None else round(value * items)
        row = Row(
            kind="trained", question=record.question, column="address", entry=label, cell=cells(record)[label],
            source="s", mixer=label, provenance=about, seed=seed, rate=rate, causal=False, metric="accuracy",
            value=value, valid_value=value, chance=0.1, steps=2, seconds=1.0, data="d", curve=[(1, 0.1), (2, 0.2)],
            scores=[1.0] * right + [0.0] * (items - right), **fields,
        )  # fmt: skip
        rates = (rate / 10, rate * 10) if seed < 2 else ()
        made += [row, *(replace(row, rate=beside, valid_value=0.0) for beside in rates)]
    return made


def results(record: Row, rows) -> Results:
    return Results(record, [record, *rows])
