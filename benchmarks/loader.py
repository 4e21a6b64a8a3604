"""Is making batches ever slower than training on them? python benchmarks/loader.py [--workers 0 2] [--seconds 5] [--json]

Tokens a second of both, for the tasks of the quick suite. Loading: items of a shuffled epoch, collated, as in training. The step:
forward, backward and AdamW of the suite's softmax model on ready batches. CPU, one thread.
"""

import time
from itertools import islice

import torch
from measuring import Json, run, show

from regard.lab.arena.choice import Choice
from regard.lab.arena.suite import QUICK, Contest
from regard.lab.arena.trial import model_config
from regard.lab.tasks import Splits
from regard.lab.train.batches import Batches, Shares, loaded
from regard.lab.train.optimizer import make_optimizer


def loading(contest: Contest, splits: Splits, workers: int, seconds: float) -> float:
    """Tokens a second, after the first batch: before it, workers start."""
    task, size = contest.task, contest.train.batch_size
    batches = Batches(len(splits.train), size, seed=0)
    ready = loaded(splits.train, task.collate, Shares(batches, 0, 10**6, 0, 1), workers)
    next(ready)
    began, tokens = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        tokens += sum(task.count(batch) for batch in islice(ready, 10))
    return tokens / passed


def stepping(contest: Contest, splits: Splits, seconds: float) -> float:
    task, size = contest.task, contest.train.batch_size
    torch.manual_seed(0)
    model = model_config(contest, Choice(mixer="softmax")).build()
    optimizer = make_optimizer(model, contest.train)
    batches = Batches(len(splits.train), size, seed=0)
    ready = list(loaded(splits.train, task.collate, Shares(batches, 0, 8, 0, 1), 0))
    task.loss(model, ready[0]).backward()
    began, tokens, step = time.perf_counter(), 0, 0
    while (passed := time.perf_counter() - began) < seconds:
        batch = ready[step % len(ready)]
        task.loss(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        tokens, step = tokens + task.count(batch), step + 1
    return tokens / passed


def main(workers: tuple[int, ...] = (0,), seconds: float = 5.0, json_: Json = False) -> int:
    """Compare the rates of loading and training.

    Args:
        workers: processes that load
        seconds: of each measurement
        json_: print data instead of a table
    """
    torch.set_num_threads(1)
    rows = []
    for contest in QUICK.contests:
        splits = contest.task.load()
        step = stepping(contest, splits, seconds)
        row = {"task": contest.task.name, "step, tokens/s": round(step)}
        for count in workers:
            rate = loading(contest, splits, count, seconds)
            row |= {
                f"{count} workers, tokens/s": round(rate),
                f"{count} workers, of the step": rate / step,
            }
        rows.append(row)
    return show(rows, as_json=json_)


if __name__ == "__main__":
    run(main)
