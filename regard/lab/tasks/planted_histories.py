"""Planted histories: is something of the candidate's kind among what was seen before? For DIN, and without a download.

The baseline sees the candidate and what is in the history, each for itself, which tell nothing: its AUC is 1/2.
"""

from dataclasses import dataclass

from regard.lab.data.planted_histories import check_planted_histories, generate_planted_histories
from regard.lab.tasks.drawn import Drawn
from regard.lab.tasks.table import Table, TableSplits, table_splits


@dataclass(frozen=True, kw_only=True)
class PlantedHistories(Drawn, Table):
    """history: items of each; their kinds are what counts."""

    name = "planted_histories"
    labels = ("liked",)

    history: int = 8
    num_items: int = 64
    num_kinds: int = 16
    valid_size: int = 2000
    test_size: int = 4000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_planted_histories(self.history, self.num_items, self.num_kinds)

    @property
    def max_len(self) -> int:
        return self.history

    def load(self) -> TableSplits:
        found = generate_planted_histories(
            self.total,
            length=self.history,
            num_items=self.num_items,
            num_kinds=self.num_kinds,
            seed=self.seed,
        )
        return table_splits(
            {"item": found.candidate, "history": found.history},
            found.liked[:, None].astype(float),
            self.parts,
            of={"history": "item"},
        )
