"""One small sample of every format that Regard reads, and the ways in which files are damaged."""

import json
import os
import random
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch.utils._pytree import tree_flatten

from regard import hf
from regard.lab.data import generated
from regard.lab.data.own import OWN
from regard.lab.experiment import ledger as ledgers
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.provenance import provenance
from regard.lab.experiment.row import Row
from regard.lab.train import checkpoint
from tests.bad_calls import small_llama

ABOUT = provenance()


def plain_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and path.name[0] != ".")


def damage(root: Path, draw: random.Random) -> None:
    """One file of the sample, chosen and damaged at random."""
    path = draw.choice(plain_files(root))
    path.write_bytes(damaged(path.read_bytes(), draw))


class Sample(NamedTuple):
    name: str
    write: Callable[[Path], Any]  # into an empty folder
    read: Callable[[Path], Any]
    damage: Callable[[Path, random.Random], None] = damage


def equal(one: Any, other: Any) -> bool:
    """To the last bit."""
    (ones, kind), (others, other_kind) = tree_flatten(one), tree_flatten(other)
    return kind == other_kind and all(map(_same, ones, others))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor | np.ndarray):
        one, other = (torch.as_tensor(z) for z in (one, other))
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Flipped, cut, doubled, moved, overwritten or with odd text put in, once or a few times."""
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        size = len(found)
        start = draw.randrange(size + 1)
        end = min(size, start + draw.choice((1, 2, 4, 8, 64, 4096)))
        match draw.randrange(7):
            case 0 if start < size:
                found[start] ^= 1 << draw.randrange(8)
            case 1:
                del found[start:end]
            case 2:
                del found[start:]
            case 3:
                found[start:start] = found[start:end]
            case 4:
                found[start:end] = draw.randbytes(end - start)
            case 5:
                found[start:end] = draw.choice((b"\0", b"\xff")) * (end - start)
            case _:
                found[start:start] = draw.choice(_ODD)
    return bytes(found)


_ODD = (
    b"-1", b"1e999", b"NaN", b"9" * 400, b"[" * 5000, b"(" * 300, b"{" * 5000, b"\r\n", b"\n\n\n", b"\t", b"\x00",
    b"\xed\xa0\x80", "\u2028".encode(), b"../../x", b"null", b"true", b'"', b"\xff\xff\xff\x7f", struct.pack("<Q", 2**62),
)  # fmt: skip


def _write_checkpoint(root: Path) -> None:
    tensors = {"w": torch.arange(2**15).float(), "half": torch.ones(64, 8).bfloat16()}
    slots = {"w/exp_avg": torch.zeros(2**12), "w/step": torch.tensor(4.0)}
    state = {"progress": {"step": 4, "curve": [[2, 0.5]]}, "random": list(range(700))}
    checkpoint.save(root / "step-00000004", checkpoint.Checkpoint(tensors, slots, state))


def _damage_sealed(root: Path, draw: random.Random) -> None:
    """Sealed anew, as somebody would who knows the format."""
    folder = root / "step-00000004"
    intact = json.loads((folder / checkpoint.STATE).read_bytes())
    damage(root, draw)
    raw = (folder / checkpoint.STATE).read_bytes()
    if json.dumps(intact).encode() == raw:
        del intact["sha256"]
        names = checkpoint.MODEL, checkpoint.OPTIMIZER
        intact["files"] = {name: checkpoint.fingerprint(folder / name) for name in names}
        raw = checkpoint._sealed(intact).encode()
    body = raw[: -checkpoint._SEAL]
    (folder / checkpoint.STATE).write_bytes(body + checkpoint._seal(body + b"}"))


def absent_row(column: str, reason: str | None) -> Row:
    """A trial without a value."""
    about = {"question": "q", "entry": "fnet", "cell": column, "source": "s", "provenance": ABOUT}
    return Row(kind="trained", column=column, reason=reason, **about)


def _write_ledger(root: Path) -> None:
    with Ledger(root / "ledger.sqlite") as ledger:
        for number in range(40):
            found = {"value": number / 40, "scores": [0.0, 1.0], "values": {"loss": 1.5}}
            row = replace(absent_row("c", None), cell=f"cell {number % 7}", seed=number, **found)
            ledger.put(f"key {number}", replace(row, curve=[(1, 0.5)]))


def _read_ledger(root: Path) -> Any:
    with Ledger(root / "ledger.sqlite") as ledger:
        return ledger.rows()


def _damage_chained(root: Path, draw: random.Random) -> None:
    """A row's text, and the chain computed anew, as somebody would who knows how."""
    database = sqlite3.connect(root / "ledger.sqlite")
    with database:
        found = database.execute("SELECT number, key, kind, result FROM trials").fetchall()
        chosen, chain = draw.randrange(len(found)), ""
        for place, (number, key, kind, text) in enumerate(found):
            if place == chosen:
                text = damaged(text.encode(), draw).decode(errors="replace")
                kind = draw.choice((kind, kind, kind, "timed", "odd"))
            told = number, key, kind, text
            row = ledgers._StoredRow(*told, ledgers._row_hash(*told))
            database.execute("REPLACE INTO trials VALUES (?, ?, ?, ?, ?)", row)
            chain = ledgers._link(chain, row)
        database.execute("UPDATE format SET chain = ?", (chain,))
    database.close()


def _cache(root: Path, make: Callable[[], Any]) -> Any:
    with mock.patch.dict(os.environ, REGARD_DATA=str(root)):
        return generated.generated("sample", {"count": 3}, make)


def _never() -> Any:
    raise generated.StoredDataError("there is no such folder")


def _write_pair(root: Path) -> None:
    for end in ("de", "en"):
        (root / f"train.{end}").write_text("one\ntwo\n" * 50)


_CHECKPOINT = _write_checkpoint, lambda root: checkpoint.load(root / "step-00000004")
_COLUMNS = {"a": np.arange(150_000), "b": np.zeros((2, 3), np.uint8)}
_ALL = (
    Sample("checkpoint", *_CHECKPOINT),
    Sample("checkpoint sealed anew", *_CHECKPOINT, _damage_sealed),
    Sample("ledger", _write_ledger, _read_ledger),
    Sample("ledger chained anew", _write_ledger, _read_ledger, _damage_chained),
    Sample("generated data", partial(_cache, make=lambda: _COLUMNS), partial(_cache, make=_never)),
    Sample("text_files", _write_pair, OWN["text_files"].read),
    Sample(
        "delimited_texts",
        lambda root: (root / "a.csv").write_text("text,label\n" + "yes I do,good\nno,bad\n" * 40),
        lambda root: OWN["delimited_texts"].read(root / "a.csv"),
    ),
    Sample(
        "folder of hf",
        lambda root: hf.save(small_llama(), root / "model"),
        lambda root: hf.load(root / "model").state_dict(),
    ),
)
SAMPLES = {sample.name: sample for sample in _ALL}
