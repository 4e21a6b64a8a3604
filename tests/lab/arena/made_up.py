"""Rows as an arena would make them: figures made up, of plausible size."""

import math
import random

from regard.lab.arena.results import LawsChecked, NotRun, Provenance, Result, Timed, Trained

WHERE = Provenance(
    commit="0123456789ab",
    command="regard arena quick --seed <0>",
    device="AMD EPYC 7B13, 2 threads",
    threads=2,
    dtype="float32",
    versions={"python": "3.11.7", "torch": "2.13.0", "regard": "0.1.0"},
    started="2026-01-05T10:00:00Z",
)
LENGTHS = (256, 512, 1024, 2048, 4096)
TASKS = {
    "listops": ("accuracy", "higher"),
    "digits": ("accuracy", "higher"),
    "stdlib_bytes": ("bits_per_byte", "lower"),
}
QUALITY = {
    "softmax": (0.412, 0.962, 2.31),
    "local": (0.398, 0.941, 2.34),
    "linear": (0.371, 0.948, 2.52),
    "synthesizer_dense": (0.386, 0.925, 2.61),
    "fnet": (0.362, 0.951, None),
    "gau": (0.409, 0.967, 2.28),
}
SPEED = {  # ratio to softmax at 256, power of the length by which it changes, megabytes at 4096, slope
    "softmax": (1.0, 0.0, 24.0, 1.0),
    "local": (1.6, -0.62, 31.0, 1.0),
    "linear": (1.3, -0.78, 21.0, 1.0),
    "synthesizer_dense": (0.9, 0.04, 410.0, 2.0),
    "fnet": (0.5, -0.85, 13.0, 1.0),
    "gau": (1.8, 0.05, 265.0, 2.0),
}


def rows(seeds: tuple[int, ...] = (0,)) -> list[Result]:
    noise = random.Random(0)
    made: list[Result] = []
    for mixer, values in QUALITY.items():
        made.append(
            LawsChecked(
                mixer=mixer,
                options={},
                source_sha256="ab" * 32,
                failed_law=None,
                message="",
                seconds=2.0,
                provenance=WHERE,
            )
        )
        for (task, (metric, better)), value in zip(TASKS.items(), values, strict=True):
            if value is None:
                made.append(
                    NotRun(
                        mixer=mixer,
                        subject=task,
                        reason="the transform mixes every token with <future> ones",
                    )
                )
                continue
            made += [trained(mixer, task, metric, better, value, seed, noise) for seed in seeds]
        for kind in ("forward", "train", "decode"):
            if mixer == "fnet" and kind == "decode":
                made.append(
                    NotRun(
                        mixer=mixer,
                        subject=kind,
                        reason="fnet does not stream: every output needs all tokens",
                    )
                )
                continue
            made += [timed(mixer, kind, length, noise) for length in LENGTHS]
    return made


def trained(mixer, task, metric, better, value, seed, noise) -> Trained:
    start = 0.1 if better == "higher" else 6.5
    value += seed * noise.uniform(-0.004, 0.004)
    curve = [
        (s, value + (start - value) * math.exp(-s / 120) * noise.uniform(0.9, 1.1))
        for s in range(50, 651, 50)
    ]
    return Trained(
        task=task,
        mixer=mixer,
        seed=seed,
        options={"window_size": 64} if mixer == "local" else {},
        metric=metric,
        value=value,
        better=better,
        parameters=noise.randint(198_000, 212_000),
        steps=650,
        tokens=2_662_400,
        seconds=noise.uniform(15, 40),
        tokens_per_second=1e5,
        data_sha256=(task.encode().hex() * 8)[:64],
        provenance=WHERE,
        curve=curve,
    )


def timed(mixer, kind, length, noise) -> Timed:
    ratio, power, megabytes, slope = SPEED[mixer]
    grow = length / LENGTHS[0]
    base = {"forward": 0.9, "train": 2.8, "decode": 0.08}[kind] * grow ** (
        0.5 if kind == "decode" else 1.7
    )
    median = (
        base
        * ratio
        * grow ** (power * (0.6 if kind == "decode" else 1.0))
        * noise.uniform(0.98, 1.02)
    )
    return Timed(
        mixer=mixer,
        options={"window_size": 64} if mixer == "local" else {},
        kind=kind,
        length=length,
        batch=1,
        dim=128,
        num_heads=4,
        causal=mixer != "fnet",
        median_ms=median,
        low_ms=median * 0.97,
        high_ms=median * 1.04,
        baseline_ms=base,
        peak_bytes=round(
            megabytes
            * 1e6
            * (length / 4096) ** slope
            * {"forward": 1, "train": 2.6, "decode": 0.2}[kind]
        ),
        rounds=15,
        provenance=WHERE,
    )
