"""Going on with the weights of another run: what has the same name and shape is taken, the rest starts anew."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from regard.core import OptionError, StoredDataError
from regard.lab.data.files import file_sha256
from regard.lab.train import checkpoint


@dataclass(frozen=True)
class Taken:
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


def take_weights(model: nn.Module, run_dir: str | Path, *, who: str = "start_from") -> Taken:
    """Load the best checkpoint of the run in `run_dir` into `model` as far as names and shapes are equal.

    Raises OptionError where there is no checkpoint or nothing fits, StoredDataError where one is damaged.
    """
    root = Path(run_dir) / "checkpoints"
    found = checkpoint.committed(root)
    if not found:
        raise OptionError(
            f"{who}: there is no checkpoint in {run_dir}. Train that run first, or name its folder."
        )
    newest = checkpoint.load(found[-1])
    try:
        progress = newest.state["progress"]
        step = progress["best_step"] or progress["step"]
        path = checkpoint.path_of(root, step)
    except (LookupError, TypeError, ValueError) as error:
        raise StoredDataError(
            f"{who}: {found[-1]} is no checkpoint of a training run ({error!r})"
        ) from error
    weights = (newest if path == found[-1] else checkpoint.load(path)).model
    ours = model.state_dict()
    fits = [n for n, value in ours.items() if n in weights and weights[n].shape == value.shape]
    if not fits:
        raise OptionError(
            f"{who}: no tensor of {run_dir} has the name and shape of one of this model. "
            "Give both runs the same sizes and vocabulary."
        )
    with torch.no_grad():
        for name in fits:
            ours[name].copy_(weights[name])
    numbers = sum(value.numel() for value in ours.values())
    return Taken(
        taken=tuple(fits),
        left=tuple(name for name in ours if name not in fits),
        step=step,
        share=sum(ours[name].numel() for name in fits) / numbers,
        sha256=file_sha256(path / checkpoint.MODEL),
    )
