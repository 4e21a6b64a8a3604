"""Trains recipes and writes their results to docs/recipes.json, from which the table of docs/tasks.md is made.

    python docs/measure.py spam newsgroups

One thread, so that the seconds are those of one core. Needs the data: `regard data get --all-open`.
"""

import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from regard.lab.arena.provenance import provenance
from regard.lab.recipes import RECIPES, Run, start
from regard.lab.tasks import Splits
from regard.lab.tasks.text_pairs import BITS, TextPairs
from regard.lab.train.batches import in_order
from regard.lab.train.transfer import take_weights

RESULTS = Path(__file__).parent / "recipes.json"


def measured(name: str, runs: Path) -> dict[str, Any]:
    """One row of the table. If a run starts from the weights of another, that one is trained first, under `runs`."""
    run = RECIPES[name]()
    if run.start_from is not None:
        first = run.start_from.name
        if not (runs / first).exists():
            start(RECIPES[first](), runs / first)
        run = dataclasses.replace(run, start_from=runs / first)
    began = time.process_time()
    splits = run.task.load()
    baseline = run.task.trivial_baseline(splits)
    result = start(run, runs / name, splits=splits)
    seconds = time.process_time() - began
    return {
        "task": run.task.name,
        "metric": result.metric,
        "better": result.better,
        "counts": [len(part) for part in (splits.train, splits.valid, splits.test)],
        "baseline": round(baseline, 4),
        "of": run.task.baseline,
        "value": round(result.value, 4),
        "seconds": round(seconds),  # of one core: data, baseline, training, test
        "generated": generated(run, splits, runs / name),
        "tokens": result.tokens,
        "data_sha256": result.data_sha256,
        "notes": result.notes,
        "run": {
            "seed": run.seed,
            "start_from": run.start_from and run.start_from.name,
            "task": dataclasses.asdict(run.task),
            "model": {"name": run.model.name} | dataclasses.asdict(run.model),
            "train": dataclasses.asdict(run.train),
        },
        "provenance": dataclasses.asdict(provenance()),
    }


def generated(run: Run, splits: Splits, folder: Path) -> dict[str, dict[str, float]]:
    """Where the metric is the cost of given targets: scores of the text that the model generates, and of the baseline's."""
    task = run.task
    if not isinstance(task, TextPairs) or task.metric != BITS or len(task.metrics) == 1:
        return {}
    model = run.model.build()
    take_weights(model, folder)
    batches = in_order(splits.test, run.train.batch_size, task.collate)
    found = {"model": task.scores(model, batches), "baseline": task.trivial_scores(splits)}
    return {of: {name: round(x, 2) for name, x in scores.items()} for of, scores in found.items()}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    runs = Path(tempfile.mkdtemp())
    for name in names:
        row = measured(name, runs)
        rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        text = json.dumps(dict(sorted((rows | {name: row}).items())), indent=1, default=str)
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
