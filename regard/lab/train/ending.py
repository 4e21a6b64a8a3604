"""The end of a run: its curve as a picture, samples of the model's answers, and the lines that load it."""

from itertools import islice
from pathlib import Path

import torch
from torch import nn

from regard.core.files import whole
from regard.lab.data.windows import BYTE_VOCABULARY, PAD, START
from regard.lab.tasks import Splits, Task
from regard.lab.tasks.table import TableTask
from regard.lab.train.loop import FitResult
from regard.lab.train.run import Run

PICTURE = "curve.png"
SAMPLES = "samples.txt"
SHOWN = 3  # samples
PROMPT, NEW = 32, 96  # tokens


def ending(
    run: Run, run_dir: Path, model: nn.Module, result: FitResult, splits: Splits
) -> list[str]:
    """Lines to print. Writes curve.png and, where there are samples, samples.txt into the folder."""
    draw(result, run_dir / PICTURE)
    lines = [f"The curve: {run_dir / PICTURE}"]
    if said := samples(run, model, splits):
        with whole(run_dir / SAMPLES) as partial:
            partial.write_text("\n\n".join(said) + "\n", "utf-8")
        lines += [f"Samples, also in {run_dir / SAMPLES}:", *said]
    return [
        *lines,
        "The best weights in Python:",
        "    from regard.lab.train import load",
        f"    model = load({str(run_dir)!r})  # load(folder, run) where options hold patterns",
    ]


def beside(task: Task, splits: Splits) -> dict[str, float]:
    """Baselines that need no model of ours, on the same test split: name -> its metric."""
    found = {getattr(task, "baseline", "trivial baseline"): task.chance(splits)}
    if isinstance(task, TableTask):
        found["boosted trees"] = task.boosted_trees(splits)
    return found


def draw(result: FitResult, path: Path) -> None:
    """Training loss and validation metric against steps, as a PNG."""
    import altair as alt

    series = {"training loss, nats": result.losses, f"validation {result.metric}": result.curve}
    charts = []
    for title, points in series.items():
        values = [{"step": step, "value": value} for step, value in points]
        chart = alt.Chart(alt.Data(values=values), title=title, width=320, height=220)
        y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False))
        charts.append(chart.mark_line(point=len(points) < 30).encode(x="step:Q", y=y))
    with whole(path) as partial:
        alt.hconcat(*charts).save(partial, format="png", scale_factor=2)


def samples(run: Run, model: nn.Module, splits: Splits) -> list[str]:
    """Test texts of bytes, and how the model goes on with them. Empty for other tasks."""
    task = run.task
    generate = getattr(model, "generate", None)
    items = list(islice(splits.test, SHOWN))
    text = task.kind == "language_model" and task.facts.get("vocab_size") == BYTE_VOCABULARY
    if not (text and generate and task.max_len > 1):
        return []
    model.eval()
    prompt = task.collate(items)["tokens"][:, : min(PROMPT, task.max_len // 2)]
    new = generate(
        prompt,
        max_new_tokens=min(NEW, task.max_len - prompt.shape[1]),
        temperature=0.8,
        generator=torch.Generator().manual_seed(0),
    )
    return [f"{_text(a)!r} -> {_text(b)!r}" for a, b in zip(prompt, new, strict=True)]


def _text(tokens: torch.Tensor) -> str:
    """Token = byte + 1; padding and the start of a text have none."""
    return bytes(t - 1 for t in tokens.tolist() if PAD < t < START).decode(errors="replace")
