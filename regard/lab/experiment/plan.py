"""What a question comes to: its cells, the data of its columns, and the record that is kept before anything is run."""

from collections.abc import Mapping
from dataclasses import replace

from regard.core import OptionError, RegardError
from regard.lab.experiment import mechanism_laws, speed, trial
from regard.lab.experiment.entry import Entry
from regard.lab.experiment.ledger import trial_key
from regard.lab.experiment.lines import LINES
from regard.lab.experiment.provenance import versions
from regard.lab.experiment.question import Column, Question
from regard.lab.experiment.row import Facts, as_json
from regard.lab.experiment.stored import LONGEST_LIST
from regard.lab.experiment.trial import Cell, obstacle
from regard.lab.tasks import Splits, Task
from regard.positions import POSITIONS, AbsolutePosition


class Plan:
    """cells: (label, column) -> the cell, of entries and lines. broken: label -> the law of mechanisms that it breaks."""

    def __init__(self, question: Question):
        self.question = question
        self.broken = dict[str, str]()
        self.cells = dict[tuple[str, str], Cell]()
        self.splits = dict[tuple[type, str], Splits]()
        labels = [entry.label for entry in question.entries]
        self.lines = [line for line in LINES if question.trained and line.label not in labels]

    def load(self, task: Task) -> Splits:
        """Once for equal tasks, such as the causal forms that each entry makes."""
        key = type(task), repr(task)
        if key not in self.splits:
            splits = Splits.of(task)
            if task.has_scores and len(splits.test) > LONGEST_LIST:
                raise OptionError(
                    f"{self.question.name} cannot be asked: {task.name} has {len(splits.test):,} test items, and a result holds "
                    f"the scores of at most {LONGEST_LIST:,}. Give it a smaller test set."
                )
            self.splits[key] = splits
        return self.splits[key]

    def record(self, met: Mapping[int, str]) -> Facts:
        """The question as it stands, with its cells and how each law was met."""
        question = self.question
        for column in question.trained:
            for entry in (*question.entries, *self.lines):
                self.cells[entry.label, column.name] = self.cell(entry, column)
            made = [self.cells[entry.label, column.name] for entry in question.entries]
            if column.either and any(cell.column.causal for cell in made):
                for line in LINES:  # the lines of the causal form
                    causal = f"{line.label}, causal"
                    self.cells[causal, column.name] = self.cell(line, column.causally())
        cells = [
            [label, name, cell.id, cell.column.causal, cell.reason, self._allowed(cell)]
            for (label, name), cell in self.cells.items()
        ]
        cells += [
            [entry.label, one.name, self.timed_cell(entry, one), None, None, None]
            for one in question.timed
            for entry in question.entries
        ]
        facts = ("name", "about", "kind", "limits", "baseline", "mark", "seeds", "rates")
        return as_json(
            {name: getattr(question, name) for name in facts}
            | {
                "entries": [
                    {"label": one.label, "laws": mechanism_laws.key(one)} | one.identity()
                    for one in question.entries
                ],
                "lines": [line.label for line in LINES] if question.trained else [],
                "columns": [one.facts for one in question.vary],
                "cells": cells,
                "claims": question.claims,
                "laws": met,
            }
        )

    def _allowed(self, cell: Cell) -> float | None:
        if not self.question.allowed or cell.entry in self.lines or cell.reason:
            return None
        return self.question.allowed(cell.entry, cell.column)

    def cell(self, entry: Entry, column: Column) -> Cell:
        """The trial's content; the causal form where that is the only one. Lines take only positions that are added."""
        if any(entry.mixer is line.mixer for line in LINES) and not issubclass(
            POSITIONS[column.shell.position], AbsolutePosition
        ):
            column = replace(column, shell=replace(column.shell, position="sinusoidal"))
        splits = self.load(column.task)
        reason = self.broken.get(entry.label)
        if not reason:
            reason = obstacle(column, entry, splits)
            if reason and column.either and not column.causal:
                other = column.causally()
                if not obstacle(other, entry, self.load(other.task)):
                    return self.cell(entry, other)
        try:
            content = trial.content(
                column,
                entry,
                None if reason else splits,
                self.question.base,
                self.question.measures,
            )
        except RegardError as error:  # it cannot take the shell, or is of no equal size
            reason = reason or str(error)
            content = {"refused": reason} | entry.identity()
        return Cell(entry, column, trial_key(content), reason)

    def runnable(self, column: Column) -> list[Cell]:
        """What can be trained in this column, the lines first: nothing is coloured without them."""
        able = [
            cell
            for cell in self.cells.values()
            if cell.column.name == column.name and not cell.reason
        ]
        lines = [line.label for line in LINES]
        return sorted(able, key=lambda cell: cell.entry.label not in lines)

    def able(self, setting: speed.Setting) -> list[Entry]:
        return [
            entry
            for entry in self.question.entries
            if entry.mixer and entry.label not in self.broken and not speed.obstacle(entry, setting)
        ]

    def timed_cell(self, entry: Entry, setting: speed.Setting) -> str:
        about = {name: versions()[name] for name in ("torch", "regard")}
        return trial_key({"kind": "timed", "setting": setting} | about | entry.identity())
