"""Facilities of this machine, and what is missing: the first thing to read when a number looks odd."""

import os
import platform
import shutil
from pathlib import Path

from regard.core.packages import numbers, version

REQUIRED = {
    "einops": "0.8",
    "jaxtyping": "0.2.36",
    "numpy": "1.26",
    "rich": "13.7",
    "safetensors": "0.4.5",
    "torch": "2.10",
    "tyro": "0.9.20",
}
"""Distribution -> oldest version, as in pyproject.toml: what the library needs."""
LAB = {
    "accelerate": "1.2",
    "altair": "5.5",
    "filelock": "3.16",
    "jinja2": "3.1",
    "pillow": "10",
    "rouge-score": "0.1.2",
    "sacrebleu": "2.4",
    "scikit-learn": "1.5",
    "scipy": "1.11",
    "tensorboard": "2.17",
    "tokenizers": "0.20",
    "torchmetrics": "1.5",
    "vl-convert-python": "1.7",
}
"""The same for the extra `lab`: data, tasks, training, the arena."""
HF = {"transformers": "5.22"}
"""The same for the extra `hf`: regard.hf."""
EXTRAS = {"lab": LAB, "hf": HF}
DEVELOPMENT = ("pytest", "pytest-xdist", "ruff", "mypy", "beartype")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def examine() -> list[dict[str, str]]:
    """Rows of what, found, and advice ("" where nothing is to be done)."""
    return [*_machine(), *_implementations(), *_packages(), *_environment()]


def missing(rows: list[dict[str, str]]) -> list[str]:
    """Packages of the library itself that are missing or too old."""
    return [row["what"] for row in rows if row["what"] in REQUIRED and row["advice"]]


def _machine() -> list[dict[str, str]]:
    import torch

    from regard import __version__
    from regard.lab.experiment.provenance import describe

    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    threads = torch.get_num_threads()
    few = f"torch uses {threads} of {cores} cores" if threads < cores else ""
    rows = [
        _row("regard", f"{__version__} in {Path(__file__).parents[1]}"),
        _row("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        _row(
            "processor",
            f"{describe('cpu')}, {cores} cores, {torch.backends.cpu.get_cpu_capability()}",
        ),
        _row("threads", str(threads), few),
        _row("memory", _memory()),
    ]
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            device = torch.cuda.get_device_properties(index)
            rows.append(
                _row(f"cuda:{index}", f"{device.name}, {device.total_memory / 2**30:.0f} GiB")
            )
    else:
        built = (
            f"torch is built for CUDA {torch.version.cuda}"
            if torch.version.cuda
            else "torch has no CUDA"
        )
        rows.append(_row("cuda", f"none ({built})"))
    if torch.backends.mps.is_available():
        rows.append(_row("mps", "available", "mechanisms are tested on a CPU only"))
    return rows


def _implementations() -> list[dict[str, str]]:
    """What `impl="auto"` takes here in the place of plain forms, operation by operation."""
    import torch

    from regard.functional.rows import replacements

    here, rows = "cuda" if torch.cuda.is_available() else "cpu", []
    for (operation, device), entries in getattr(replacements(), "FAST", {}).items():
        for entry in entries:
            lacks = entry.lacks() if device == here else None
            where = f"{entry.name} on {device}: {entry.about}"
            found = where if device == here and not lacks else f"plain ({where})"
            advice = f"{entry.name} needs {lacks}" if lacks else ""
            rows.append(_row(f"impl=auto, {operation}", found, advice))
    return rows


def _packages() -> list[dict[str, str]]:
    rows = [_package(name, oldest) for name, oldest in REQUIRED.items()]
    for extra, packages in EXTRAS.items():
        rows += [_package(name, oldest, extra) for name, oldest in packages.items()]
    rows += [_row(name, version(name) or "missing (development only)") for name in DEVELOPMENT]
    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    rows.append(_row("browser", browser or "missing (only the page's own tests need one)"))
    return rows


def _package(name: str, oldest: str, extra: str = "") -> dict[str, str]:
    found = version(name)
    needed = f"{name} ({extra})" if extra else name
    if found is None:
        source = f"regard[{extra}]" if extra else f"{name}>={oldest}"
        return _row(needed, "missing", f"pip install '{source}'")
    old = numbers(found) < numbers(oldest)
    return _row(needed, found, f"{oldest} or later is needed" if old else "")


def _environment() -> list[dict[str, str]]:
    from regard.lab.experiment.provenance import VARIABLES

    settings = [_row(name, os.environ.get(name, "not set")) for name in THREADS]
    retained = "changes timings by up to 6 times; figures are quoted without it"
    for name in VARIABLES:
        value = os.environ.get(name)
        settings.append(_row(name, value or "not set", retained if value else ""))
    return settings


def _row(what: str, found: str, advice: str = "") -> dict[str, str]:
    return {"what": what, "found": found, "advice": advice}


def _memory() -> str:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return "unknown"
    return f"{pages * size / 2**30:.1f} GiB"
