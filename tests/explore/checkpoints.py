"""Folders as `regard train` leaves them, without training."""

import json
from dataclasses import asdict
from pathlib import Path

import torch

from regard.lab.train import checkpoint
from regard.models import ModelConfig

STEP = 3


def saved(config: ModelConfig, folder: Path) -> Path:
    """A run's folder with a checkpoint of this model, at its first weights."""
    torch.manual_seed(0)
    model = config.build()
    described = json.loads(json.dumps({"name": config.name} | asdict(config), default=str))
    state = {
        "run": {"model": described, "task": "made up"},
        "progress": {"step": STEP, "best_step": STEP},
    }
    where = checkpoint.path_of(folder / "checkpoints", STEP)
    where.parent.mkdir(parents=True)
    checkpoint.save(where, checkpoint.Checkpoint(model.state_dict(), {}, state))
    return folder
