"""A checkpoint is a folder: two safetensors files and state.json, committed by one rename.

    step-00000100/model.safetensors       every parameter and persistent buffer
    step-00000100/optimizer.safetensors   "<parameter>/<slot>", such as "head.weight/exp_avg"
    step-00000100/state.json              everything else, with the size and sha256 of each file and of itself

A folder that a killed process left half written is named *.partial: it never counts, and `clean` removes it.
A committed file that is missing, shorter or different raises StoredDataError with its name. No pickle.
"""

import hashlib
import json
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.core import OptionError, StoredDataError
from regard.core.files import PARTIAL, file_sha256, number_in, path_error, reported, whole

FORMAT = 1
State = dict[str, Any]  # JSON values
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"


class Checkpoint(NamedTuple):
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: State


def path_of(root: Path, step: int) -> Path:
    return root / f"step-{step:08d}"


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the folder whole: afterwards all of it is there, before none. Raises PathError where it cannot be written."""
    with whole(folder) as partial:
        partial.mkdir()
        for name, tensors in ((MODEL, checkpoint.model), (OPTIMIZER, checkpoint.optimizer)):
            try:
                apart = {
                    key: one.detach().cpu().contiguous().clone() for key, one in tensors.items()
                }
                save_file(apart, partial / name)  # a tied parameter once for each of its names
            except SafetensorError as error:
                raise path_error(folder, number_in(str(error)), str(error)) from error
        files = {name: fingerprint(partial / name) for name in (MODEL, OPTIMIZER)}
        (partial / STATE).write_text(
            _sealed({"format": FORMAT, "files": files, "state": checkpoint.state}), "utf-8"
        )


def load(folder: Path) -> Checkpoint:
    """The checkpoint, after every byte has been compared with what was written.

    Raises StoredDataError naming the file that is missing, truncated or altered.
    """
    content = _unsealed(folder / STATE)
    for name in (MODEL, OPTIMIZER):
        _verify(folder / name, content["files"].get(name))
    try:
        model = load_file(folder / MODEL)
        optimizer = load_file(folder / OPTIMIZER)
    except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise _damaged(folder / MODEL, f"or its {OPTIMIZER} holds no tensors ({error})") from None
    return Checkpoint(model, optimizer, content["state"])


def committed(root: Path) -> list[Path]:
    """Folders of complete checkpoints, oldest first."""
    return sorted(path for path in root.glob("step-*") if path.suffix != PARTIAL)


def clean(root: Path) -> None:
    """Removes what a killed process left half written."""
    with reported(root):
        for path in root.glob(f"step-*{PARTIAL}"):
            rmtree(path)


def prune(root: Path, keep: int, best: Path) -> None:
    """Leaves the newest `keep` checkpoints and the best. Moved aside first: a kill leaves no half-deleted one."""
    with reported(root):
        for path in committed(root)[:-keep]:
            if path != best:
                partial = path.with_name(path.name + PARTIAL)
                path.rename(partial)
                rmtree(partial)


def fingerprint(path: Path) -> State:
    """Size and SHA-256 of a file."""
    return {"size": path.stat().st_size, "sha256": file_sha256(path)}


def _verify(path: Path, written: Any) -> None:
    if not path.is_file():
        raise _damaged(path, "is missing, or no plain file")
    if fingerprint(path) != written:
        raise _damaged(path, "was truncated or altered")


def _sealed(content: State) -> str:
    body = json.dumps(content)
    return body[:-1] + _seal(body.encode()).decode()


def _seal(body: bytes) -> bytes:
    return b', "sha256": "%s"}' % hashlib.sha256(body).hexdigest().encode()


_SEAL = len(_seal(b""))  # bytes


def _unsealed(path: Path) -> State:
    """The sealed content; it is compared with its seal before it is read, which takes many times its memory."""
    if not path.is_file():
        raise _damaged(path, "is missing, or no plain file")
    raw = path.read_bytes()
    if raw[-_SEAL:] != _seal(raw[:-_SEAL] + b"}"):
        raise _damaged(path, "was truncated or altered")
    try:
        content = json.loads(raw)
        version = content["format"]
        fits = all(isinstance(content[name], dict) for name in ("files", "state"))
    except (ValueError, LookupError, TypeError, RecursionError):
        version = FORMAT
        fits = False
    if version != FORMAT:
        raise StoredDataError(
            f"{path} has format {version}, and this version of regard reads {FORMAT}."
        )
    if not fits:
        raise _damaged(path, "describes no checkpoint")
    return content


def _damaged(path: Path, what: str) -> StoredDataError:
    instead = f"Put the file back, or remove {path.parent} to go on from the checkpoint before it."
    return StoredDataError(f"{path} {what}. {instead}")


class Taken(NamedTuple):
    """Names of tensors: taken, and of the model's those that no tensor of the run fits."""

    taken: tuple[str, ...]
    left: tuple[str, ...]
    step: int  # of the run's best checkpoint
    share: float  # of the model's numbers that were taken
    sha256: str  # of that checkpoint's file of weights

    def __str__(self) -> str:
        rest = f"; new: {', '.join(self.left)}" if self.left else ""
        return (
            f"{len(self.taken)} tensors ({self.share:.0%} of the numbers) of step {self.step}{rest}"
        )


def newest(run_dir: str | Path, who: str) -> tuple[Path, Checkpoint]:
    """The newest checkpoint of the run in this folder. Raises OptionError where there is none, StoredDataError for a damaged one."""
    found = committed(Path(run_dir) / "checkpoints")
    if not found:
        raise OptionError(
            f"{who}: there is no checkpoint in {run_dir}. Train that run first, or name its folder."
        )
    return found[-1], load(found[-1])


def take_weights(model: nn.Module, run_dir: str | Path, *, who: str = "start_from") -> Taken:
    """Load the best checkpoint of the run in `run_dir` into `model` as far as names and shapes are equal.

    Raises OptionError where there is no checkpoint or nothing fits, StoredDataError where one is damaged.
    """
    last, found = newest(run_dir, who)
    try:
        progress = found.state["progress"]
        step = progress["best_step"] or progress["step"]
        path = path_of(last.parent, step)
    except (LookupError, TypeError, ValueError) as error:
        raise StoredDataError(
            f"{who}: {last} is no checkpoint of a training run ({error!r})"
        ) from error
    weights = (found if path == last else load(path)).model
    ours = model.state_dict()
    fits = [n for n, value in ours.items() if n in weights and weights[n].shape == value.shape]
    if not fits:
        raise OptionError(
            f"{who}: no tensor of {run_dir} has the name and shape of one of this model. Give both runs the same sizes and vocabulary."
        )
    model.load_state_dict({name: weights[name] for name in fits}, strict=False)
    numbers = sum(value.numel() for value in ours.values())
    return Taken(
        taken=tuple(fits),
        left=tuple(name for name in ours if name not in fits),
        step=step,
        share=sum(ours[name].numel() for name in fits) / numbers,
        sha256=file_sha256(path / MODEL),
    )
