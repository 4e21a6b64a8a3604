"""Formatting of numbers and findings for terminal and page."""

from regard.lab.arena.report.summary import (
    Decision,
    LedgerSummary,
    Quality,
    measurably_faster,
)
from regard.lab.arena.results import Pass, Unit

PASS_NAMES: dict[Pass, str] = {
    "forward": "forward pass",
    "train": "training step",
    "prefill": "prefill",
    "decode": "decoding step",
}
UNIT_NAMES: dict[Unit, str] = {
    "block": "a block of mechanism and feed-forward layer",
    "layer": "the bare layer",
}

MOST_CHOICES = 4  # that a headline names


def times(ratio: float) -> str:
    """A time ratio to softmax as a speed: 0.5 -> "2×"."""
    speed = 1 / ratio
    return (
        f"{speed:,.0f}×"
        if speed >= 9.95
        else f"{speed:.1f}×"
        if speed >= 0.995
        else f"{speed:.2g}×"
    )


def size(value: float, unit: str = "B") -> str:
    for power, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= power:
            return f"{_three(value / power)} {prefix}{unit}".strip()
    return f"{value:.0f} {unit}".strip()


def count(value: float) -> str:
    return f"{value:,.0f}"


def parameters(bounds: tuple[float, float] | None) -> str:
    """Fewest and most, as one number where they look alike."""
    if bounds is None:
        return "–"
    low, high = (size(value, "") for value in bounds)
    return low if low == high else f"{low} – {high}"


def milliseconds(value: float) -> str:
    return f"{_three(value)} ms"


def quality(found: Quality | None) -> str:
    if found is None:
        return "–"
    spread = "" if found.spread is None else f" ± {found.spread:.3f}"
    return f"{found.mean:.3f}{spread}"


def metric(name: str) -> str:
    return name.replace("_", " ")


def joined(names: list[str] | tuple[str, ...], last: str = "and") -> str:
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def decision(found: Decision, summary: LedgerSummary) -> str:
    """The recommendation in a sentence: mechanism, gain and cost."""
    name, best = metric(found.quality.metric), found.best
    if summary.is_baseline(found.choice):
        speed = "nothing as good was measurably faster"
    else:
        speed = f"{times(found.timed.ratio)} as fast as fused softmax"
    if found.choice == best.mechanism:
        cost = f"{name} {quality(best)}, the best measured"
    else:
        cost = f"{name} {quality(found.quality)} against {quality(best)} for the best, {best.mechanism}"
    also = f"; {joined(found.level)} about as fast and as good" if found.level else ""
    untimed = f"; {joined(found.untimed)} as good but not timed here" if found.untimed else ""
    return f"{speed}, {cost}{also}{untimed}"


def certainty(summary: LedgerSummary) -> str:
    """How far the choice can be trusted."""
    rule = "“As good” means within 2 % of the best quality, or within the interval over seeds where that is wider."
    fewest = summary.seeds_per_pair
    if fewest == 0:
        return ""
    if fewest == 1:
        return f"{rule} Quality rests on one seed per pair, so small differences may be chance."
    return f"{rule} Quality is the mean of at least {fewest} seeds, ± Student's interval at 95 %."


def headline(summary: LedgerSummary) -> str:
    """One line for a reader in a hurry."""
    kind = summary.passes[0] if summary.passes else None
    length = summary.usual_length(kind) if kind else None
    decisions = []
    if kind and length:
        decided = (summary.decide(task, kind, length) for task in summary.tasks_for(kind))
        decisions = [decision for decision in decided if decision]
    if kind and length and not summary.tasks:
        return _fastest(summary, kind, length)
    if not decisions or kind is None:
        return "Not enough is measured yet to choose: a choice needs one mechanism both trained and timed."
    by_choice: dict[str, list[str]] = {}
    for found in decisions:
        by_choice.setdefault(found.choice, []).append(found.task)
    about = f"{PASS_NAMES[kind]} at {length:,} tokens"
    about = f"{about[0].upper()}{about[1:]}"
    if len(by_choice) > MOST_CHOICES:
        shared = f"{len(by_choice)} mechanisms share {len(decisions)} tasks"
        return f"{about}: no single choice; {shared}."
    parts = [f"{choice} for {joined(tasks)}" for choice, tasks in by_choice.items()]
    if len(by_choice) == 1 and len(decisions) > 1:
        parts = [f"{next(iter(by_choice))} on every task measured"]
    return f"{about}: {'; '.join(parts)}."


def _fastest(summary: LedgerSummary, kind: Pass, length: int) -> str:
    """Before anything was trained."""
    about = f"{PASS_NAMES[kind].capitalize()} at {length:,} tokens"
    timed = {label: summary.timing(label, kind, length) for label in summary.mechanisms}
    ratios = {
        label: row.ratio
        for label, row in timed.items()
        if row and measurably_faster(row) and not summary.is_baseline(label)
    }
    if not ratios:
        return f"{about}: nothing is measurably faster than softmax; no quality is known yet."
    best = min(ratios, key=lambda label: ratios[label])
    return f"{about}: {best} is fastest, {times(ratios[best])} as fast as softmax; no quality is known yet."


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"
