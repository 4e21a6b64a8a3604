"""`regard bench` on the command line: which mixers, passes, lengths, types and devices, and what is printed."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import product
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.cli.arguments import Flag, Json, Length, Words, given_options
from regard.cli.names import choice
from regard.cli.printing import print_json, print_table
from regard.core import Above0, Declared, OptionError, visible
from regard.core.files import check_writable
from regard.lab.experiment.stored import Facts, Pass, Type, Unit

if TYPE_CHECKING:
    from regard.lab import Entry, Setting
    from regard.lab.experiment.row import Row

LEDGER = Path("runs/arena/ledger.sqlite")
PAGE = Path("runs/arena/report.html")


def check_outputs(inputs: Iterable[Path | None], **outputs: Path | None) -> None:
    """`check_writable` of what is given, none of which may be another of them or be read; in a folder that is read it ends in .html. Raises PathError, OptionError."""
    read = [Path(realpath(path)) for path in inputs if path]
    taken = dict.fromkeys(read, "what is read")
    for name, path in outputs.items():
        if path is None:
            continue
        at = Path(realpath(path))
        inside = at.suffix != ".html" and any(at.is_relative_to(one) for one in read)
        other = "what is read" if inside else taken.setdefault(at, f"--{name}")
        if other != f"--{name}":
            raise OptionError(f"--{name} would overwrite {other}: {path}")
        check_writable(path)


CAUSAL = {"either": None, "yes": True, "no": False}


class Bench(Declared):
    """Time mixers beside fused softmax attention of the same causality, in one interleaved run for each setting."""

    mixers: Words = ()
    """names of mixers, or module:Class of your own; all of the catalogue by default"""
    lengths: tuple[Length, ...] = (256, 1024)
    """tokens processed, or for decode already in the state"""
    passes: tuple[Pass, ...] = ("forward", "train", "decode")
    causal: Literal["either", "yes", "no"] = "either"
    """for forward and train; either: bidirectional where the mixer can be"""
    options: Words = ()
    """NAME=VALUE, for each of the mixers that has an option of this name"""
    unit: Unit = "block"
    """a block of mechanism and feed-forward layer, with as many parameters as softmax's, or the bare layer"""
    batch: int = 1
    dim: int = 256
    num_heads: int = 4
    dtypes: tuple[Type, ...] = ("float32",)
    devices: Words = ("cpu",)
    seconds: Above0 = 4.0
    """for each pass at each length, all mixers together"""
    unchecked: Flag = False
    """time without checking the laws; the output says so"""
    ledger: Path = LEDGER
    """where the verdicts on the laws are kept"""
    json: Json = False

    def run(self) -> None:
        from regard.lab.experiment.speed import measure, obstacle

        for device in self.devices:
            _check_device(device)
        settings = self._settings()
        choices = self._choices()
        faults = {} if self.unchecked else self._faults(choices)
        timed = []
        not_run = dict[tuple[str, str], str]()
        for setting in settings:
            why = {one.name: faults.get(one.name) or obstacle(one, setting) for one in choices}
            not_run |= {(setting.kind, name): said for name, said in why.items() if said}
            if able := [one for one in choices if not why[one.name]]:
                timed += measure(able, setting)
        absent = [
            {"pass": kind, "mixer": name, "not run": why} for (kind, name), why in not_run.items()
        ]
        if self.json:
            found = {"timed": list(map(_data, timed)), "not_run": absent}
            print_json(found | {"laws_checked": not self.unchecked})
        else:
            print_table(map(_line, timed))
            if absent:
                print_table(absent)
            for origin in dict.fromkeys(map(_origin, timed)):
                print(visible(origin))
            checked = "not checked (--unchecked)" if self.unchecked else "checked on this source"
            print(
                f"laws: {checked}. ratio: to softmax attention of the same causality. share: counted operations over time, of the matrix-product rate."
            )

    def _settings(self) -> "list[Setting]":
        from regard.lab import Setting
        from regard.lab.experiment.passes import STREAMING

        same = {
            name: getattr(self, name) for name in ("batch", "dim", "num_heads", "seconds", "unit")
        }
        varied = product(self.devices, self.dtypes, self.passes, self.lengths)
        return [
            Setting(
                kind=kind,
                length=length,
                dtype=dtype,
                device=device,
                causal=None if kind in STREAMING else CAUSAL[self.causal],
                **same,
            )
            for device, dtype, kind, length in varied
        ]

    def _choices(self) -> "list[Entry]":
        """Each mixer with those of the options that it has."""
        from regard.lab.experiment.entry import check_entries
        from regard.mixers import MIXERS
        from regard.mixers.build import option_names

        listed = [choice(name) for name in self.mixers or MIXERS]
        check_entries(listed)
        options = given_options(self.options)
        taken = {one.name: set(option_names(one.written)) for one in listed}
        for name in options.keys() - set().union(*taken.values()):
            raise OptionError(f"none of {', '.join(taken)} has an option {name!r}")
        chosen = [
            replace(one, options={k: v for k, v in options.items() if k in taken[one.name]})
            for one in listed
        ]
        for one in chosen:
            one.sketch()  # wrong values are found before anything is timed
        return chosen

    def _faults(self, choices: "list[Entry]") -> dict[str, str | None]:
        """Mixer -> the law that it breaks, or None."""
        from rich.console import Console

        from regard.lab.experiment.ledger import Ledger
        from regard.lab.experiment.mechanism_laws import fault

        faults = {}
        with Ledger(self.ledger) as ledger, Console(stderr=True).status("laws") as status:
            for one in choices:
                status.update(f"laws  {one.name}")
                faults[one.name] = fault(one, ledger)
        return faults


def _share(row: "Row") -> float | None:
    """Share of the machine's matrix-product rate; projections and recomputation count. None where nothing is counted."""
    return 1e3 * row.flops / (row.values["ms"] * row.values["matrix_rate"]) if row.flops else None


def _data(row: "Row") -> Facts:
    """A timing as one mapping of plain values: what was timed, how, and what came of it."""
    kept = ("entry", "mixer", "source", "options", "causal", "parameters", "flops")
    facts = {name: getattr(row, name) for name in kept} | row.setting
    values = {"state_bytes": None} | row.values
    return facts | {
        "median_ms": values.pop("ms"),
        **values,
        "ratio": row.ratio,
        "matrix_share": _share(row),
        "provenance": asdict(row.provenance),
    }


def _line(row: "Row") -> Facts:
    setting = row.setting
    values = row.values
    share = _share(row)
    return {
        "pass": setting["kind"],
        "length": setting["length"],
        "of": setting["unit"],
        "type": row.provenance.dtype,
        "mixer": row.mixer,
        "causal": row.causal,
        "impl": setting["impl"],
        "ms": values["ms"],
        "quartiles": f"{values['low_ms']:.4g} to {values['high_ms']:.4g}",
        "softmax ms": values["baseline_ms"],
        "ratio": row.ratio,
        "GFLOP": row.flops / 1e9 or None,
        "share": share and f"{share:.0%}",
        "peak MiB": values["peak_bytes"] / 2**20,
        "rounds": values["rounds"],
        "parameters": row.parameters,
    }


def _origin(row: "Row") -> str:
    where = row.provenance
    versions = ", ".join(f"{name} {version}" for name, version in where.versions.items())
    return (
        f"{row.setting['kind']} {row.setting['length']} {where.dtype}: {where.device}; allocator {where.allocator}; "
        f"matrix products {row.values['matrix_rate'] / 1e9:.0f} GFLOP/s; {versions}; commit {where.commit}"
    )


def _check_device(name: str) -> None:
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0]
        raise OptionError(
            f"device {name!r} cannot be used here: {why}. `regard doctor` lists what can."
        ) from None
