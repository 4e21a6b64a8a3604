"""Is making batches ever slower than training on them? Tokens a second of both, for the tasks of the arena.

    python benchmarks/loader.py [--workers 0 2] [--seconds 5]

Loading is what training does: items of a shuffled epoch, collated. The step is forward, backward and AdamW of the quick
suite's softmax model on batches that are ready. One thread, the CPU.
"""

import argparse
import time
from itertools import islice

import torch

from regard.cli.printing import print_table
from regard.lab.arena.choice import Choice
from regard.lab.arena.suite import QUICK, Contest
from regard.lab.arena.trial import model_config
from regard.lab.tasks import Splits
from regard.lab.train.batches import Batches, Shares, loaded
from regard.lab.train.optimizer import make_optimizer


def loading(contest: Contest, splits: Splits, workers: int, seconds: float) -> float:
    """Tokens a second; the time until the first batch, in which workers start, does not count."""
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


def main(workers: list[int], seconds: float) -> None:
    torch.set_num_threads(1)
    rows = []
    for contest in QUICK.contests:
        splits = contest.task.load()
        step = stepping(contest, splits, seconds)
        row = {"task": contest.task.name, "step, tokens/s": f"{step:,.0f}"}
        for count in workers:
            rate = loading(contest, splits, count, seconds)
            row |= {
                f"{count} workers, tokens/s": f"{rate:,.0f}",
                f"{count}: over": f"{rate / step:.0f}x",
            }
        rows.append(row)
    print_table(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    told = parser.parse_args()
    main(told.workers, told.seconds)
