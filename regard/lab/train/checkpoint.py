"""A checkpoint is a folder: two safetensors files and state.json, committed by one rename.

    step-00000100/model.safetensors       every parameter and persistent buffer
    step-00000100/optimizer.safetensors   "<parameter>/<slot>", such as "head.weight/exp_avg"
    step-00000100/state.json              everything else, with the size and sha256 of each file and of itself

A folder that a killed process left half written is named *.partial: it never counts, and `clean` removes it.
A committed file that is missing, shorter or different raises StoredDataError with its name. No pickle.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.core import StoredDataError
from regard.lab.data.files import PARTIAL, file_sha256, number_in, path_error, reported, whole

FORMAT = 1
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"


class Checkpoint(NamedTuple):
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]  # JSON values


def path_of(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the folder whole: afterwards all of it is there, before none. Raises PathError where it cannot be written."""
    with whole(folder) as partial:
        partial.mkdir()
        for name, tensors in ((MODEL, checkpoint.model), (OPTIMIZER, checkpoint.optimizer)):
            try:
                save_file(_unshared(tensors), partial / name)
            except SafetensorError as error:
                raise path_error(folder, number_in(str(error)), str(error)) from error
        files = {name: fingerprint(partial / name) for name in (MODEL, OPTIMIZER)}
        (partial / STATE).write_text(
            _sealed({"format": FORMAT, "files": files, "state": checkpoint.state})
        )


def load(folder: Path) -> Checkpoint:
    """The checkpoint, after every byte has been compared with what was written.

    Raises StoredDataError naming the file that is missing, truncated or altered.
    """
    content = _unsealed(folder / STATE)
    for name, written in content["files"].items():
        _verify(folder / name, written)
    try:
        model, optimizer = load_file(folder / MODEL), load_file(folder / OPTIMIZER)
    except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise StoredDataError(
            f"{folder} holds no tensors ({error}). {_instead(folder / MODEL)}"
        ) from None
    return Checkpoint(model, optimizer, content["state"])


def committed(root: Path) -> list[Path]:
    """Folders of complete checkpoints, oldest first."""
    return sorted(path for path in root.glob("step-*") if path.suffix != PARTIAL)


def clean(root: Path) -> None:
    """Removes what a killed process left half written."""
    with reported(root):
        for path in root.glob(f"step-*{PARTIAL}"):
            shutil.rmtree(path)


def prune(root: Path, keep: int, best: Path) -> None:
    """Leaves the newest `keep` checkpoints and the best. Moved aside first: a kill leaves no half-deleted one."""
    with reported(root):
        for path in committed(root)[:-keep]:
            if path != best:
                partial = path.with_name(path.name + PARTIAL)
                path.rename(partial)
                shutil.rmtree(partial)


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tied parameters are written once for each of their names."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def fingerprint(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    return {"size": path.stat().st_size, "sha256": file_sha256(path)}


def _verify(path: Path, written: dict[str, Any]) -> None:
    if not path.exists():
        raise StoredDataError(f"{path} is missing. {_instead(path)}")
    found = fingerprint(path)
    if found["size"] != written["size"]:
        raise StoredDataError(
            f"{path} has {found['size']} bytes, {written['size']} were written. {_instead(path)}"
        )
    if found["sha256"] != written["sha256"]:
        raise StoredDataError(
            f"{path} was altered: its sha256 is not that of what was written. {_instead(path)}"
        )


def _sealed(content: dict[str, Any]) -> str:
    body = json.dumps(content)
    return body[:-1] + _seal(body.encode()).decode()


def _seal(body: bytes) -> bytes:
    return b', "sha256": "%s"}' % hashlib.sha256(body).hexdigest().encode()


_SEAL = len(_seal(b""))  # bytes


def _unsealed(path: Path) -> dict[str, Any]:
    """The sealed content; it is compared with its seal before it is read, which takes many times its memory."""
    if not path.exists():
        raise StoredDataError(f"{path} is missing. {_instead(path)}")
    raw = path.read_bytes()
    if raw[-_SEAL:] != _seal(raw[:-_SEAL] + b"}"):
        raise StoredDataError(f"{path} was truncated or altered. {_instead(path)}")
    try:
        content = json.loads(raw)
        version, files, state = content["format"], content["files"], content["state"]
        fits = isinstance(state, dict) and files.keys() == {MODEL, OPTIMIZER}
        fits = fits and all(written.keys() == {"size", "sha256"} for written in files.values())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise StoredDataError(f"{path} describes no checkpoint. {_instead(path)}") from None
    if version != FORMAT:
        raise StoredDataError(
            f"{path} has format {version}, and this version of regard reads {FORMAT}."
        )
    if not fits:
        raise StoredDataError(f"{path} describes no checkpoint. {_instead(path)}")
    return content


def _instead(path: Path) -> str:
    return f"Put the file back, or remove {path.parent} to go on from the checkpoint before it."
