"""The fingerprint of capabilities: what one layer of each mechanism reaches within some hundred steps, alone, in four tasks.

Settings were tuned so that softmax attention solves the four; a row says "reached x within N steps", never "cannot".
Structures are smaller than half of the shortest row, 32 tokens: windows of 4 to each side see 9 of them.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.core import Mask, Mixer, Options
from regard.explore.readout import influence
from regard.functional.patterns import First, Window
from regard.lab import Column, Entry, Question, Setting, Shell
from regard.lab.tasks import StdlibBytes
from regard.lab.tasks.fingerprint import Ability, Address, Capacity, Counting, Lookup, Order
from regard.lab.train import TrainConfig
from regard.lab.train.models import TokenReaderConfig
from regard.lab.train.short import Short
from regard.mixers import HeadGroup

DIM = 32
NUM_HEADS = 4
SHELL = Shell(dim=DIM, num_heads=NUM_HEADS, num_layers=1, position="learned")
_BY_CONTENT = frozenset({"hashed", "routed", "sorted"})
"""Families whose pairs are chosen by content."""


def _column(task: Ability, steps: int, *, later: bool = False) -> Column:
    return Column(
        name=task.name,
        task=task,
        train=Short(steps=steps),
        shell=SHELL,
        model=TokenReaderConfig,
        either=True,
        later=later,
    )


def _entry(title: str, model: Options | None = None, **options: Any) -> Entry:
    """Finds an entry by its title, which begins with the mixer's name."""
    return Entry(mixer=title.partition(",")[0], title=title, model=model or {}, options=options)


_WINDOW = Window(2, 2)
_PATTERNS = (_WINDOW, Window(2, 2, 4), _WINDOW | First(1), _WINDOW)
_GROUPS = (HeadGroup("local", 2, {"window_size": 4}), HeadGroup("linear", 2))
ENTRIES = (
    _entry("softmax"),
    _entry("scored, additive", score="additive"),
    _entry("luong_local, window 4", window_size=4),
    _entry("local, window 4", window_size=4),
    _entry("strided, stride sqrt(T/2)"),
    _entry("global, 1 token"),
    _entry("head_mix, windows of 2, one dilated by 4, one with the first token", patterns=_PATTERNS),
    _entry("head_groups, two of window 4, two linear", groups=_GROUPS),
    _entry("longformer, window 4, first token global", {"global_tokens": 1}, window_size=4, max_global=1),
    _entry("bigbird, blocks of 4, 1 random", block_size=4, num_random=1),
    _entry("reformer, chunks of 8, 2 hashes", chunk_size=8, num_hashes=2),
    _entry("routing, 4 clusters of T/4", num_clusters=4),
    _entry("sinkhorn, blocks of 8", block_size=8),
    _entry("linformer, 8 slots", num_slots=8),
    _entry("compressed, 3 to 1"),
    _entry("efficient"),
    _entry("linear"),
    _entry("rfa, 32 features", num_features=32),
    _entry("performer, 32 features", num_features=32),
    _entry("synthesizer_dense"),
    _entry("synthesizer_random"),
    _entry("synthesizer_factorized_dense"),
    _entry("synthesizer_factorized_random, rank 8"),
    _entry("mixture, softmax and synthesizer_random"),
    _entry("fixed_patterns, 3 and one learned head"),
    _entry("mlp_mixer, 16 hidden"),
    _entry("gmlp, 128 hidden", hidden_dim=128),
    _entry("fnet"),
    _entry("gau, keys of 32", key_dim=32),
    _entry("flash, chunks of 8, keys of 32", chunk_size=8, key_dim=32),
    _entry("mixed_chunk, chunks of 8", chunk_size=8),
    _entry("transformer_xl"),
    _entry("scalar_decay, retention"),
    _entry("gated_delta, no convolution", conv_size=None),
    _entry("kimi_delta, no convolution", conv_size=None),
    _entry("gated_linear"),
    _entry("latent, 8 channels", latent_dim=8),
    _entry("forgetting"),
    _entry("differential"),
    _entry("nystrom, 8 landmarks", num_landmarks=8, conv_size=9),
    _entry("moba, 3 blocks of 4", block_size=4, top_k=3),
    _entry("indexed, 8 keys", top_k=8),
    _entry("native_sparse, 6 blocks of 2, window 4", block_size=2, top_k=6, window_size=4),
)  # fmt: skip


def allowed_share(entry: Entry, column: Column) -> float | None:
    """Share of the needed pairs of tokens that the structure allows, c. A perfect use of them gives c + (1 - c) chance.

    None where no pairs are needed as such, or where content chooses the pairs.
    """
    needed = getattr(column.task, "needed", None)
    if needed is None:
        return None
    mixer = entry.build(dim=DIM, num_heads=NUM_HEADS, max_len=column.task.max_len)
    if mixer.family in _BY_CONTENT:
        return None
    marked = 0 if column.causal else entry.model.get("global_tokens", 0)
    pairs = seen_pairs(mixer, column.task.max_len, causal=column.causal, marked=marked)
    return float(pairs[needed].double().mean())


def seen_pairs(mixer: Mixer, length: int, *, causal: bool, marked: int) -> Tensor:
    """[T T] True where a token's output has a gradient with respect to another token, for any of some random inputs.

    Inputs are drawn until three in a row have shown nothing new: a squared relu is zero for half of the pairs of each.
    """
    marks = (torch.arange(length) < marked)[None] if marked else None
    mask = Mask(causal=causal, global_tokens=marks)
    mixer = mixer.double().eval()
    seen = torch.zeros(length, length, dtype=torch.bool)
    news = [True]
    while any(news[-3:]) and not seen.all():
        generator = torch.Generator().manual_seed(len(news) - 1)
        x = torch.randn(1, length, mixer.dim, generator=generator, dtype=torch.float64)
        found = influence(partial(mixer, mask=mask), x, probes=1, seed=len(news))[0] > 0
        news.append(bool((found & ~seen).any()))
        seen |= found
    return seen


FINGERPRINT = Question(
    name="fingerprint",
    about="what one layer of every mechanism looks up, orders, addresses and counts within some hundred steps: ten minutes on two cores",
    entries=ENTRIES,
    vary=(
        Setting(kind="forward", length=2048, dim=64, unit="block", seconds=1.0),
        _column(Lookup(), 500),
        _column(Order(), 300),
        _column(Address(), 300),
        _column(Counting(), 600),
        _column(Capacity(), 1500, later=True),
        Column(
            name="bytes",
            task=StdlibBytes(length=128),
            train=TrainConfig(
                tokens=300_000, batch_size=16, lr=2e-3, eval_every=150, checkpoint_every=150, keep=1
            ),
            shell=Shell(position="learned"),
            later=True,
        ),
    ),
    rates=(1e-2, 3e-2),
    allowed=allowed_share,
    hours=0.155,
    limits=(
        "One layer of width 32, rows of 32 to 48 tokens, learned positions: a cell says what was reached within so many steps, never what cannot be.",
        "The settings were tuned so that softmax attention solves the four columns.",
        "A token is a whole pair here, and its neighbours are noise: delta rules stand without their short convolution, which leaves lookup at chance for 500 steps.",
        "A low cell has one of three causes: the structure, the steps or the rate. Parameters are printed, not matched.",
        "Counting asks for the histogram of a row, which a bag holds whole: what it asks is to read it, and the bag's line is high.",
        "The order is one permutation, drawn so that a window of 4 reaches no answer; another gives strided attention 4 to 12 of its 24 pairs. The share of needed pairs that a structure allows is printed with each cell.",
        "Generalisation to other lengths, scale and, in most rows, the causal form are not tested.",
    ),
)
"""The page of `make arena`."""
