"""The ten laws of an experiment. A question that breaks one is refused before it is run, and its page says how each was met.

     1  one shell, one baseline at its best        6  two sources of uncertainty: seeds, and rows of the test set
     2  equal budgets, named                       7  a verdict is written by nobody
     3  rates are searched until the best is inside  8  small is said
     4  three lines in every column                9  same command, same page
     5  the structure is smaller than the input   10  a row has one source

A screen is held to 4, 5, 9 and 10, and has no claim; a comparison to all.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from regard.core import Mixer, OptionError, UnsupportedError
from regard.functional.patterns import Pattern
from regard.lab.experiment.entry import Entry
from regard.lab.experiment.lines import LINES
from regard.lab.experiment.question import Column, Question, Shell
from regard.lab.experiment.results import Results
from regard.lab.experiment.shell import _CONFIGS, EQUAL, model_config, obstacle
from regard.lab.tasks import Splits, Task
from regard.models import count_parameters

LEAST_SEEDS = 8
SIZES = (
    "window_size",
    "chunk_size",
    "block_size",
    "num_slots",
    "num_clusters",
    "top_k",
    "num_landmarks",
    "stride",
    "before",
    "after",
    "size",
    "radius",
)
"""Options, and fields of options, that are sizes of a structure in tokens or slots."""


class ExperimentError(OptionError):
    """A question breaks a law of an experiment."""

    def __init__(self, law: int, question: str, why: str, instead: str):
        super().__init__(
            f"{question} breaks law {law} of an experiment ({NAMES[law]}): {why}. {instead}"
        )
        self.law = law


NAMES = {
    1: "one shell, one baseline at its best",
    2: "equal budgets",
    3: "rates are searched until the best is inside",
    4: "three lines in every column",
    5: "the structure is smaller than the input",
    6: "uncertainty has two sources",
    7: "a verdict is written by nobody",
    8: "small is said",
    9: "same command, same page",
    10: "a row has one source",
}


def check(question: Question, load: Callable[[Task], Splits]) -> dict[int, str]:
    """How each law was met. Raises ExperimentError, with the law's number, for the first that is broken."""
    of_kind = (4, 5, 9, 10) if question.kind == "screen" else tuple(NAMES)
    if question.kind == "screen" and question.claims:
        raise ExperimentError(
            7,
            question.name,
            "it is a screen and has claims",
            'Give it kind="comparison", which all ten laws check',
        )
    return {law: _LAWS[law](question, load) for law in of_kind}


def _shell(question: Question, load: Callable[[Task], Splits]) -> str:
    if len(question.shells) < 2:
        raise ExperimentError(
            1,
            question.name,
            "its shell was not searched",
            "Give `shells` of which the baseline's best is taken: positions, norms or widths",
        )
    if question.baseline not in [entry.label for entry in question.entries]:
        raise ExperimentError(
            1,
            question.name,
            f"it has no entry {question.baseline!r}",
            "Enter the baseline, or name another by `baseline`",
        )
    base = next(entry for entry in question.entries if entry.label == question.baseline)
    taken = base.sketch().capabilities.positions if base.mixer is not None else frozenset()
    entries = [entry for entry in question.entries if entry.mixer is not None]
    for shell in question.shells:
        around = {entry.label: _around(entry, shell) for entry in entries}
        beside = [around[entry.label] for entry in entries if entry.mixer == base.mixer]
        for label, facts in around.items():
            for name, value in facts.items():
                if (
                    name in question.factors
                    and name == "position"
                    and value - taken - {shell.position}
                ):
                    continue  # the baseline cannot have them: a factor that is declared
                if value not in [other.get(name) for other in beside]:
                    raise ExperimentError(
                        1,
                        question.name,
                        f"{label} has {name} {_named(value)} and no entry of {base.name} has the same",
                        f"Give both the same, or enter {base.name} with it too",
                    )
        for one in _bounds(question):
            if one.beside is None or not {one.of, one.beside} <= around.keys():
                continue
            first, second = around[one.of], around[one.beside]
            for name in first.keys() | second.keys():
                if first.get(name) != second.get(name) and name not in question.factors:
                    raise ExperimentError(
                        1,
                        question.name,
                        f"{one.of} has {name} {_named(first.get(name))} and {one.beside} {_named(second.get(name))}",
                        f'Compare at equal ones, or declare factors=("{name}",)',
                    )
    return f"the best of {len(question.shells)} shells for {question.baseline}, given to every entry that takes it"


def _around(entry: Entry, shell: Shell) -> dict[str, Any]:
    """What an entry has besides its mechanism: positions, the shell's and those that it brings, and fields of its own."""
    sketch = entry.sketch()
    brought = {sketch.options.get(name) for name in ("position", "relative_bias")}
    taken = sketch.capabilities.positions
    given = {str(entry.model.get("position", shell.position))}
    kinds = {str(kind) for kind in brought - {None}} | given | (taken if len(taken) == 1 else set())
    own = {k: v for k, v in entry.model.items() if k not in ("position", "hidden_dim")}
    return own | {"position": frozenset(kinds - {"none", "absolute"})}


def _named(value: Any) -> str:
    return (" and ".join(sorted(value)) or "none") if isinstance(value, frozenset) else repr(value)


def _bounds(question: Question) -> Iterator[Any]:
    for claim in question.claims:
        for one in claim.expected:
            yield one
            yield from one.when


def _budgets(question: Question, load: Callable[[Task], Splits]) -> str:
    base = next(entry for entry in question.entries if entry.label == question.baseline)
    told = []
    for column in question.trained:
        splits, targets = load(column.task), []
        reason = obstacle(column, base, splits)
        if reason is not None:
            raise ExperimentError(
                1,
                question.name,
                f"its baseline cannot be trained in {column.name}: {reason}",
                "Name another by `baseline`",
            )
        for placed in (replace(column, shell=shell) for shell in question.shells):
            target = count_parameters(model_config(placed, base, splits))  # type: ignore[arg-type]
            targets.append(target)
            for entry in question.entries:
                _equal(question, placed, entry, base, splits, target)
        shown = f"{min(targets):,}"
        if len({*targets}) > 1:
            shown += f" to {max(targets):,}, after the shell,"
        told.append(f"{shown} parameters in {column.name}")
    return f"within {EQUAL:.0%} of {', '.join(told)}; equal steps, and equal time read off the same curves; operations counted"


def _equal(
    question: Question, column: Column, entry: Entry, base: Entry, splits: Splits, target: int
) -> None:
    if (entry.before is None) != (base.before is None) and "before" not in question.factors:
        raise ExperimentError(
            2,
            question.name,
            f"{entry.label} and {base.label} are not both trained before",
            'Declare factors=("before",), or give both the same',
        )
    if "size" in question.factors or obstacle(column, entry, splits) is not None:
        return
    try:
        count = count_parameters(model_config(column, entry, splits, beside=base))  # type: ignore[arg-type]
    except UnsupportedError:  # it cannot take this shell, and its row will say so
        return
    except OptionError as error:
        raise ExperimentError(
            2,
            question.name,
            str(error).rstrip("."),
            'Change dim, leave the entry out, or declare factors=("size",)',
        ) from error
    if abs(count - target) > EQUAL * target:
        raise ExperimentError(
            2,
            question.name,
            f"{entry.label} has {count:,} parameters in {column.name}, {count / target - 1:+.1%} of {base.label}'s {target:,}",
            f"Let them differ by at most {EQUAL:.0%}: leave hidden_dim to the engine",
        )


def _rates(question: Question, load: Callable[[Task], Splits]) -> str:
    if not question.rates:
        raise ExperimentError(
            3,
            question.name,
            "it has no rates to search",
            "Give `rates`, a grid in which the best may lie",
        )
    if not question.widen:
        raise ExperimentError(
            3,
            question.name,
            f"its rates ({', '.join(f'{rate:g}' for rate in question.rates)}) may not be widened",
            "Leave out widen=False",
        )
    return f"from {', '.join(f'{rate:g}' for rate in question.rates)}, with two seeds, widened until each entry's best is inside"


def _lines(question: Question, load: Callable[[Task], Splits]) -> str:
    own = {entry.label: entry for entry in question.entries}
    without = []
    for column in question.trained:
        lines = [own.get(line.label, line) for line in LINES]
        missing = [line.label for line in lines if line.mixer is not None]
        if column.task.kind not in _CONFIGS and missing:
            raise ExperimentError(
                4,
                question.name,
                f"{column.name} is of kind {column.task.kind}, in whose model nothing can stand for {' and '.join(missing)}",
                f"Enter models with the titles {' and '.join(missing)}",
            )
        for line in lines:
            reason = obstacle(column, line, load(column.task))
            if reason is not None and question.kind == "comparison":
                raise ExperimentError(
                    4,
                    question.name,
                    f"{line.label} cannot be trained in {column.name}: {reason}",
                    f"Enter a model with the title {line.label}",
                )
            without += [column.name] * (reason is not None and column.name not in without)
    but = ", ".join(without)
    return (
        "chance, a model without mixing and the bag in every column"
        + (f" but {but}, in which neither can stand and nothing is grey" if without else "")
        + "; what does not pass them is grey"
    )


def _structure(question: Question, load: Callable[[Task], Splits]) -> str:
    for column in question.trained:
        for entry in question.entries:
            for name, size in _structures(entry, column):
                length = _length(column, load)
                if 2 * size >= length:
                    raise ExperimentError(
                        5,
                        question.name,
                        f"{entry.label} has {name} {size}, and {column.name} has at most {length} tokens",
                        f"Give {name} less than half of them",
                    )
    return "every window, chunk, bucket and number of slots is below half of the tokens"


def _length(column: Column, load: Callable[[Task], Splits]) -> int:
    """Tokens of the longest row; of a table its fields, of a vector its numbers."""
    if column.task.kind not in ("table", "vectors"):
        return column.task.max_len
    facts = {**column.task.facts, **load(column.task).facts}
    return facts.get("input_dim") or len(facts.get("fields", ()))


def _structures(entry: Entry, column: Column) -> Iterator[tuple[str, int]]:
    """Names and values of the sizes of an entry's structure, as its options or its defaults say them."""
    if entry.mixer is None:
        config = entry.make(column) if entry.make is not None else None
        for one in getattr(config, "layers", ()):
            yield from _structures(Entry(mixer=one.mixer, options=one.options), column)
        return
    sketch = entry.sketch(
        dim=column.shell.dim, num_heads=column.shell.num_heads, max_len=column.task.max_len
    )
    for mixer in sketch.modules():
        if isinstance(mixer, Mixer):
            held = {k: v for k, v in vars(mixer).items() if k in SIZES or isinstance(v, Pattern)}
            yield from sizes(dict(mixer.options) | held)


def sizes(options: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Names and values of the options that are sizes of a structure, however deep."""
    for name, value in options.items():
        if name in SIZES and isinstance(value, int) and not isinstance(value, bool):
            yield name, value
        elif isinstance(value, Mapping):
            yield from sizes(value)
        elif is_dataclass(value) and not isinstance(value, type):
            yield from sizes({one.name: getattr(value, one.name) for one in fields(value)})
        elif isinstance(value, list | tuple):
            for one in value:
                yield from sizes({name: one})


def _uncertainty(question: Question, load: Callable[[Task], Splits]) -> str:
    seeds = len(set(question.seeds))
    if seeds < LEAST_SEEDS:
        raise ExperimentError(
            6,
            question.name,
            f"it has {seeds} seed{'s' * (seeds != 1)}",
            f"Give at least {LEAST_SEEDS}",
        )
    for column in question.trained:
        if not column.task.has_scores:
            raise ExperimentError(
                6,
                question.name,
                f"{column.task.name} gives no score of each test item ({column.task.metric})",
                "Choose a task that does, or a screen",
            )
    return f"{seeds} seeds and the test items, both in each interval; failed runs are counted and decide no mean"


def _verdicts(question: Question, load: Callable[[Task], Splits]) -> str:
    for claim in question.claims:
        if not claim.smallest > 0:
            raise ExperimentError(
                7,
                question.name,
                f"a claim names no smallest effect worth telling: {claim.text}",
                "Give `smallest`",
            )
        if not (claim.text and claim.source and claim.expected):
            raise ExperimentError(
                7, question.name, "a claim needs a text, a source and bounds", "Give all three"
            )
        for one in claim.expected:
            if any(not (math.isfinite(b.least) or math.isfinite(b.most)) for b in (one, *one.when)):
                raise ExperimentError(
                    7,
                    question.name,
                    f"a bound on {one.of} bounds nothing",
                    "Give `least` or `most`",
                )
            for condition in one.when:
                if question.column(condition.column) != question.column(one.column):
                    raise ExperimentError(
                        7,
                        question.name,
                        f"a bound on {question.column(one.column)} has a condition on {question.column(condition.column)}",
                        "A condition is on the column that it guards",
                    )
    return "verdicts follow from intervals at 99 %; claims, tasks and smallest effects were kept before the first run"


def _small(question: Question, load: Callable[[Task], Splits]) -> str:
    if not question.limits:
        raise ExperimentError(
            8, question.name, "it does not say what runs of its size cannot tell", "Give `limits`"
        )
    told = [
        f"{c.name}: {c.train.steps or c.train.tokens:,} {'steps' if c.train.steps else 'tokens'}"
        for c in question.trained
    ]
    return f"asked for this budget alone ({', '.join(told)})"


def worst_commit(question: Question) -> str:
    """Commit of all entries, "+changes" where one of them has some."""
    return max((entry.commit for entry in question.entries), key=len)


def _same(question: Question, load: Callable[[Task], Splits]) -> str:
    commit = worst_commit(question)
    if question.kind == "comparison" and commit.endswith("+changes"):
        raise ExperimentError(
            9,
            question.name,
            "the working tree, or a file that an entry needs, has changes that no commit holds, and its page could name none",
            "Commit them first",
        )
    return f"commit {commit}"


def check_page(results: Results) -> None:
    """Law 9, of the results as they are. Raises ExperimentError where a commit that would be named does not hold what was run."""
    origins = [results.asked.provenance, *(one.provenance for one in results.timed.values())]
    origins += [row.provenance for cell in results.cells.values() for row in cell.tried]
    commits = [origin.commit for origin in origins]
    wrong = [one for one in commits if one == "unknown" or one.endswith("+changes")]
    if wrong:
        raise ExperimentError(
            9,
            results.asked.question,
            f"{len(wrong)} of {len(commits)} results are of {', '.join(sorted({*wrong}))}, which a reader cannot check out",
            "Ask it again, on another ledger, from a clean checkout",
        )


def _sources(question: Question, load: Callable[[Task], Splits]) -> str:
    return f"sources of {len(question.entries)} entries, the engine and torch are part of each row's key"


_LAWS: dict[int, Callable[[Question, Callable[[Task], Splits]], str]] = {
    1: _shell,
    2: _budgets,
    3: _rates,
    4: _lines,
    5: _structure,
    6: _uncertainty,
    7: _verdicts,
    8: _small,
    9: _same,
    10: _sources,
}
