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
from dataclasses import replace
from typing import Any

from regard.core import Mixer, OptionError, Options, UnsupportedError
from regard.functional.patterns import Pattern
from regard.lab.experiment.entry import Entry, Facts, commit, leaves
from regard.lab.experiment.lines import LINES
from regard.lab.experiment.question import Column, Question, Shell
from regard.lab.experiment.results import Results
from regard.lab.experiment.trial import _CONFIGS, EQUAL, model_config, obstacle
from regard.lab.tasks import Splits, Task
from regard.models import count_parameters

LEAST_SEEDS = 8
SIZES = (
    "window_size", "chunk_size", "block_size", "num_slots", "num_clusters", "top_k",
    "num_landmarks", "conv_size", "stride", "before", "after", "size", "radius",
)  # fmt: skip
"""Options, and fields of options, that are sizes of a structure in tokens or slots."""


Load = Callable[[Task], Splits]


class ExperimentError(OptionError):
    """A question breaks a law of an experiment."""

    def __init__(self, law: int, question: str, why: str, instead: str):
        super().__init__(
            f"{question} breaks law {law} of an experiment ({LAWS[law][0]}): {why}. {instead}"
        )
        self.law = law


class _Broken(Exception):
    """Why a law is broken, and what to do instead."""


def check(question: Question, load: Load) -> dict[int, str]:
    """Says how each law was met. Raises ExperimentError, with the law's number, for the first that is broken."""
    if question.kind == "screen" and question.claims:
        instead = 'Give it kind="comparison", which all ten laws check'
        raise ExperimentError(7, question.name, "it is a screen and has claims", instead)
    met = {}
    for law in (4, 5, 9, 10) if question.kind == "screen" else LAWS:
        try:
            met[law] = LAWS[law][1](question, load)
        except _Broken as broken:
            raise ExperimentError(law, question.name, *broken.args) from broken.__cause__
    return met


def _shell(question: Question, load: Load) -> str:
    if all(shell == question.shells[0] for shell in question.shells):
        raise _Broken(
            "its shell was not searched",
            "Give `shells` of which the baseline's best is taken: positions, norms or widths",
        )
    base = question.base
    if not base:
        raise _Broken(
            f"it has no entry {question.baseline!r}",
            "Enter the baseline, or name another by `baseline`",
        )
    for column in question.trained:
        if reason := obstacle(column, base, load(column.task)):
            raise _Broken(
                f"its baseline cannot be trained in {column.name}: {reason}",
                "Name another by `baseline`",
            )
    for shell in question.shells:
        around = {one.label: _around(one, shell) for one in question.entries if one.mixer}
        _crossed(question, base, shell, around)
        _compared(question, around)
    return f"the best of {len(question.shells)} shells for {question.baseline}, given to every entry that takes it"


def _crossed(question: Question, base: Entry, shell: Shell, around: Mapping[str, Facts]) -> None:
    """Whatever an entry has around its mechanism, an entry of the baseline's mechanism has too."""
    taken = base.sketch().capabilities.positions if base.mixer else frozenset()
    beside = [around[one.label] for one in question.entries if one.mixer == base.mixer != None]  # noqa: E711
    for label, facts in around.items():
        for name, value in facts.items():
            if name == "position" in question.factors and value - taken - {shell.position}:
                continue  # the baseline cannot have them: a factor that is declared
            if value not in [other.get(name) for other in beside]:
                raise _Broken(
                    f"{label} has {name} {_named(value)} and no entry of {base.name} has the same",
                    f"Give both the same, or enter {base.name} with it too",
                )


def _compared(question: Question, around: Mapping[str, Facts]) -> None:
    """Two entries of a bound differ in declared factors alone."""
    for one in question.bounds:
        if one.beside is None or not {one.of, one.beside} <= around.keys():
            continue
        first = around[one.of]
        second = around[one.beside]
        for name in (first.keys() | second.keys()) - {*question.factors}:
            if first.get(name) != second.get(name):
                raise _Broken(
                    f"{one.of} has {name} {_named(first.get(name))} and {one.beside} {_named(second.get(name))}",
                    f'Compare at equal ones, or declare factors=("{name}",)',
                )


def _around(entry: Entry, shell: Shell) -> Facts:
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


def _budgets(question: Question, load: Load) -> str:
    base = question.base
    told = []
    assert base is not None  # law 1
    for column in question.trained:
        splits = load(column.task)
        targets = []
        for placed in (replace(column, shell=shell) for shell in question.shells):
            targets.append(count_parameters(model_config(placed, base, splits)))
            for entry in question.entries:
                _equal(question, placed, entry, base, splits, targets[-1])
        shown = f"{min(targets):,}"
        if len({*targets}) > 1:
            shown += f" to {max(targets):,}, after the shell,"
        told.append(f"{shown} parameters in {column.name}")
    return f"within {EQUAL:.0%} of {', '.join(told)}; equal steps, and equal time read off the same curves; operations counted"


def _equal(
    question: Question, column: Column, entry: Entry, base: Entry, splits: Splits, target: int
) -> None:
    if (entry.before is None) != (base.before is None) and "before" not in question.factors:
        raise _Broken(
            f"{entry.label} and {base.label} are not both trained before",
            'Declare factors=("before",), or give both the same',
        )
    if "size" in question.factors or obstacle(column, entry, splits):
        return
    try:
        count = count_parameters(model_config(column, entry, splits, beside=base))
    except UnsupportedError:  # it cannot take this shell, and its row will say so
        return
    except OptionError as error:
        raise _Broken(
            str(error).rstrip("."), 'Change dim, leave the entry out, or declare factors=("size",)'
        ) from error
    if abs(count - target) > EQUAL * target:
        raise _Broken(
            f"{entry.label} has {count:,} parameters in {column.name}, {count / target - 1:+.1%} of {base.label}'s {target:,}",
            f"Let them differ by at most {EQUAL:.0%}: leave hidden_dim to the engine",
        )


def _rates(question: Question, load: Load) -> str:
    rates = ", ".join(f"{rate:g}" for rate in question.rates)
    if not rates:
        raise _Broken("it has no rates to search", "Give `rates`, a grid in which the best may lie")
    return f"from {rates}, with two seeds, widened until each entry's best is inside"


def _lines(question: Question, load: Load) -> str:
    own = {entry.label: entry for entry in question.entries}
    without = []
    for column in question.trained:
        lines = [own.get(line.label, line) for line in LINES]
        missing = " and ".join(line.label for line in lines if line.mixer)
        if column.task.kind not in _CONFIGS and missing:
            raise _Broken(
                f"{column.name} is of kind {column.task.kind}, in whose model nothing can stand for {missing}",
                f"Enter models with the titles {missing}",
            )
        reasons = {line.label: obstacle(column, line, load(column.task)) for line in lines}
        for label, reason in reasons.items():
            if reason and question.kind == "comparison":
                raise _Broken(
                    f"{label} cannot be trained in {column.name}: {reason}",
                    f"Enter a model with the title {label}",
                )
        without += [column.name] * any(reasons.values())
    but = f" but {', '.join(without)}, in which neither can stand and nothing is grey" * bool(
        without
    )
    return f"chance, a model without mixing and the bag in every column{but}; what does not pass them is grey"


def _structure(question: Question, load: Load) -> str:
    for column in question.trained:
        for entry in question.entries:
            for name, size in _structures(entry, column):
                if 2 * size >= (length := _length(column, load)):
                    raise _Broken(
                        f"{entry.label} has {name} {size}, and {column.name} has at most {length} tokens",
                        f"Give {name} less than half of them",
                    )
    return "every window, chunk, bucket and number of slots is below half of the tokens"


def _length(column: Column, load: Load) -> int:
    """Tokens of the longest row; of a table its fields, of a vector its numbers."""
    if column.task.kind not in ("table", "vectors"):
        return column.task.max_len
    facts = {**column.task.facts, **load(column.task).facts}
    return facts.get("input_dim") or len(facts.get("fields", ()))


def _structures(entry: Entry, column: Column) -> Iterator[tuple[str, int]]:
    """Names and values of the sizes of an entry's structure, as its options or its defaults say them."""
    if not entry.mixer:
        for one in getattr(entry.made(column), "layers", ()):
            yield from _structures(Entry(mixer=one.mixer, options=one.options), column)
        return
    sketch = entry.sketch(
        dim=column.shell.dim, num_heads=column.shell.num_heads, max_len=column.task.max_len
    )
    for mixer in sketch.modules():
        if isinstance(mixer, Mixer):
            held = {k: v for k, v in vars(mixer).items() if k in SIZES or isinstance(v, Pattern)}
            yield from sizes(dict(mixer.options) | held)


def sizes(options: Options) -> Iterator[tuple[str, int]]:
    """Names and values of the options that are sizes of a structure, however deep."""
    for name, value in leaves(options):
        if name in SIZES and type(value) is int:
            yield name, value


def _uncertainty(question: Question, load: Load) -> str:
    seeds = len(question.seeds)
    if seeds < LEAST_SEEDS:
        raise _Broken(f"it has {seeds} seed{'s' * (seeds != 1)}", f"Give at least {LEAST_SEEDS}")
    for column in question.trained:
        if not column.task.has_scores:
            raise _Broken(
                f"{column.task.name} gives no score of each test item ({column.task.metric})",
                "Choose a task that does, or a screen",
            )
    return f"{seeds} seeds and the test items, both in each interval; failed runs are counted and decide no mean"


def _verdicts(question: Question, load: Load) -> str:
    if not question.claims:
        raise _Broken("it claims nothing", 'Give `claims`, or kind="screen"')
    for claim in question.claims:
        if not claim.smallest > 0:
            raise _Broken(
                f"a claim names no smallest effect worth telling: {claim.text}", "Give `smallest`"
            )
        if not (claim.text and claim.source and claim.expected):
            raise _Broken("a claim needs a text, a source and bounds", "Give all three")
        for bound in claim.expected:
            if not (math.isfinite(bound.least) or math.isfinite(bound.most)):
                raise _Broken(f"a bound on {bound.of} bounds nothing", "Give `least` or `most`")
    return "verdicts follow from intervals at 99 %; claims, tasks and smallest effects were kept before the first run"


def _small(question: Question, load: Load) -> str:
    if not question.limits:
        raise _Broken("it does not say what runs of its size cannot tell", "Give `limits`")
    told = [
        f"{c.name}: {c.train.steps or c.train.tokens:,} {'steps' if c.train.steps else 'tokens'}"
        for c in question.trained
    ]
    return f"asked for this budget alone ({', '.join(told)})"


def worst_commit(question: Question) -> str:
    """Commit of all that it holds, "+changes" where a part has some."""
    parts = (*question.entries, *question.trained)
    return commit(question.measures, [one.holds for one in parts])  # type: ignore[attr-defined]


def _same(question: Question, load: Load) -> str:
    found = worst_commit(question)
    if question.kind == "comparison" and found.endswith("+changes"):
        raise _Broken(
            "the working tree, or a file that an entry needs, has changes that no commit holds, and its page could name none",
            "Commit them first",
        )
    return f"commit {found}"


def check_page(results: Results) -> None:
    """Law 9, of the results as they are. Raises ExperimentError where a commit that would be named does not hold what was run."""
    rows = [results.asked, *results.timed.values()]
    rows += [row for cell in results.cells.values() for row in cell.tried]
    commits = [row.provenance.commit for row in rows]
    if wrong := [one for one in commits if one == "unknown" or one.endswith("+changes")]:
        raise ExperimentError(
            9,
            results.asked.question,
            f"{len(wrong)} of {len(commits)} results are of {', '.join(sorted({*wrong}))}, which a reader cannot check out",
            "Ask it again, on another ledger, from a clean checkout",
        )


def _sources(question: Question, load: Load) -> str:
    return f"sources of {len(question.entries)} entries, what trains them, the engine and torch are part of each row's key"


LAWS = {
    1: ("one shell, one baseline at its best", _shell),
    2: ("equal budgets", _budgets),
    3: ("rates are searched until the best is inside", _rates),
    4: ("three lines in every column", _lines),
    5: ("the structure is smaller than the input", _structure),
    6: ("uncertainty has two sources", _uncertainty),
    7: ("a verdict is written by nobody", _verdicts),
    8: ("small is said", _small),
    9: ("same command, same page", _same),
    10: ("a row has one source", _sources),
}
