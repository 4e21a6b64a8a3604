"""ListOps as Long Range Arena released it (Tay et al. 2021, arXiv 2011.04006): tables `Source <tab> Target`.

Sources are written with round brackets around every pair, which mean nothing and are dropped, as the release's own reader
does. What remains is the language that `regard.lab.data.listops` generates.
"""

from pathlib import Path

import numpy as np

from regard.core import StoredDataError
from regard.lab.data.checks import need
from regard.lab.data.listops import VOCABULARY, Expressions
from regard.lab.data.own.format import Format, Parts, text_of

_ID = {token: number for number, token in enumerate(VOCABULARY)}
_DROPPED = {"(", ")"}
LAYOUT = "a folder with basic_train.tsv, basic_val.tsv and basic_test.tsv"


def read(path: Path) -> Parts:
    files = {"train": "train", "valid": "val", "test": "test"}
    return {part: _table(need(path / f"basic_{name}.tsv", LAYOUT)) for part, name in files.items()}


def _table(path: Path) -> Expressions:
    sources, values = [], []
    for number, line in enumerate(text_of(path).splitlines()[1:], 2):
        source, tab, target = line.partition("\t")
        words = [word for word in source.split() if word not in _DROPPED]
        unknown = [word for word in words if word not in _ID]
        if not tab or not words or unknown or target.strip() not in tuple("0123456789"):
            why = (
                f"unknown {unknown[0]!r}"
                if unknown
                else "expected an expression, a tab and a digit"
            )
            raise StoredDataError(f"{path}, line {number}: {why}")
        sources.append(np.array([_ID[word] for word in words], dtype=np.int32))
        values.append(int(target))
    lengths = np.array([len(source) for source in sources], dtype=np.int64)
    tokens = np.concatenate([np.empty(0, dtype=np.int32), *sources])
    return Expressions(tokens, lengths, np.array(values, dtype=np.int64))


FORMAT = Format(
    name="lra_listops",
    about="Long Range Arena, ListOps: nested lists and their value",
    layout=LAYOUT,
    read=read,
)
