"""Which sixteen keys of forty-eight should a query see, and how many of softmax's weights does a trained model need?

regard arena questions.keys:QUESTION --rows docs/findings/rows/keys.jsonl

About 13 core-minutes, estimated: 120 runs of 6 s, and a sixth more where rates are widened.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from questions._models import ReaderConfig
from regard.explore import layers
from regard.functional.patterns import Window
from regard.lab import Claim, Column, Entry, Question, Shell, above, stays_below
from regard.lab.experiment.question import Fitted
from regard.lab.tasks.fingerprint import Lookup
from regard.lab.train.short import Short, row_accuracies

SHELLS = tuple(Shell(num_layers=1, position=one) for one in ("learned", "sinusoidal"))


@contextmanager
def _pruned(model: nn.Module, mixers: list[Any], least: float) -> Iterator[None]:
    """While open, weights below `least` are zero and the others are divided by their sum."""

    def again(mixer: Any, args: Any, kwargs: Any, y: Tensor) -> Tensor:
        seen = mixer.observe(args[0], mask=kwargs["mask"])
        kept = seen.weights * (seen.weights >= least)
        return mixer.heads.merge(kept / kept.sum(-1, keepdim=True).clamp(min=least) @ seen.v)

    handles = [mixer.register_forward_hook(again, with_kwargs=True) for mixer in mixers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def trained_weights(fitted: Fitted) -> dict[str, float]:
    """Of softmax attention: singular values that hold nine tenths of a matrix, and the accuracy that goes with weights below 1/T and 3/T."""
    mixers = [one for one in fitted.model.modules() if getattr(one, "name", "") == "softmax"]
    if not mixers:
        return {}
    tokens, _ = fitted.splits.test.rows()
    matrices = torch.cat(
        [layer.found.values.flatten(0, 1) for layer in layers(fitted.model, tokens[:32])]
    )
    energy = torch.linalg.svdvals(matrices).square()
    share = energy.cumsum(-1) / energy.sum(-1, keepdim=True)
    found = {"rank": float((share < 0.9).sum(-1).float().mean()) + 1}
    for n in (1, 3):
        with _pruned(fitted.model, mixers, n / tokens.shape[1]):
            left = float(row_accuracies(fitted.model, fitted.splits.test).mean())
        found[f"lost without weights below {n}/T"] = fitted.result.value - left
    return found


# fmt: off
QUESTION = Question(
    name="keys",
    about="Who chooses sixteen keys best: a learned matrix, a convolution, hashes, clusters, a sort of blocks, or the place?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax"),
        Entry(mixer="linformer", title="matrix (Linformer)", options={"num_slots": 16}),
        Entry(mixer="compressed", title="convolution of 3", options={"factor": 3}),
        Entry(mixer="reformer", title="hashes", options={"chunk_size": 8, "num_hashes": 1}),
        Entry(mixer="routing", title="clusters", options={"num_clusters": 3, "window_size": 16}),
        Entry(mixer="sinkhorn", title="sorted blocks", options={"block_size": 8}),
        Entry(mixer="local", title="those nearby", options={"window_size": 8}),
        Entry(mixer="head_mix", title="every third place", options={"patterns": (Window(8, 8, 3),) * 4}),
    ),
    vary=(
        Column(name="lookup", task=Lookup(), train=Short(steps=500), shell=SHELLS[0], model=ReaderConfig),
    ),
    shells=SHELLS,
    rates=(5e-3, 1e-2, 2e-2),
    measures=trained_weights,
    claims=(
        Claim(
            text="Attention matrices are of low rank: a third of the singular values holds nine tenths.",
            source="Wang et al. 2020, arXiv 2006.04768, of their spectrum", smallest=1.0, expected=(stays_below("softmax", 16, measure="rank"),),
        ),
        Claim(
            text="Small weights may be zero: without those below 1/T accuracy falls by 0.01 at most.", source="a survey article", smallest=0.005,
            expected=(stays_below("softmax", 0.01, measure="lost without weights below 1/T"),),
        ),
        Claim(
            text="A learned matrix chooses better than a convolution.",
            source="Wang et al. 2020, arXiv 2006.04768, against Liu et al. 2018, arXiv 1801.10198, as a survey article has it", smallest=0.03,
            expected=(above("matrix (Linformer)", "convolution of 3"),),
        ),
        Claim(
            text="Keys chosen by content serve better than those at fixed places.",
            source="Kitaev et al. 2020, arXiv 2001.04451; Roy et al. 2020, arXiv 2003.05997; Tay et al. 2020, arXiv 2002.11296", smallest=0.03,
            expected=tuple(above(one, "every third place") for one in ("hashes", "clusters", "sorted blocks")),
        ),
        Claim(text="Clusters choose better than hashes.", source="Roy et al. 2020, arXiv 2003.05997", smallest=0.03, expected=(above("clusters", "hashes"),)),
    ),
    limits=(
        "Sixteen pairs a query are equal pairs, not equal time: at 48 tokens all of them are slower than softmax, and a page of times says from where they are not.",
        "Looking up by an equal key is what hashes and clusters are made for; where tokens must be summed, slots are at an advantage that this task does not show.",
        "Windows see 17 tokens; nearby ones hold few answers and are no better than the bag, those of every third place a third of all answers. Hashes make keys of queries and see their own chunk of 8 and the one before; clusters and sorted blocks do not.",
        "What does not exceed the bag has no verdict.",
    ),
)
