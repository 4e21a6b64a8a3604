"""Flights that left New York in 2013: what was known of each before it left, and whether it was late.

Nothing here was recorded after departure but the two labels. The package has more: dep_time, dep_delay, arr_time,
arr_delay and air_time would tell the answer. Weather is that of the airport in the hour before the scheduled one.
"""

import csv
import math
from collections.abc import Sequence
from datetime import date
from io import BytesIO, StringIO
from operator import itemgetter
from typing import NamedTuple
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

LATE = 15  # minutes
ABSENT = ("", "NA")
TIMETABLE = (
    *("month", "day", "sched_dep_time", "sched_arr_time", "carrier", "flight", "tailnum"),
    *("origin", "dest", "distance"),
)
DELAYS = ("dep_delay", "arr_delay")
TIME = ("origin", "month", "day", "hour")
WEATHER = ("temp", "humid", "wind_speed", "precip", "pressure", "visib")


class Flights(NamedTuple):
    """In the order of the file, which is not that of days."""

    fields: dict[str, list]
    late: NDArray[
        np.floating
    ]  # [n 2]: departed, arrived 15 minutes or more behind; NaN: not recorded
    month: NDArray[np.integer]


def parse_flights(flights: bytes, weather: bytes) -> Flights:
    """Of flights.csv.zip and weather.csv. What never departed is left out; arrivals elsewhere have no second label."""
    with ZipFile(BytesIO(flights)) as file:
        columns = _columns(file.read(file.namelist()[0]), TIMETABLE + DELAYS)
    departed = [i for i, delay in enumerate(columns["dep_delay"]) if delay not in ABSENT]
    columns = {name: [column[i] for i in departed] for name, column in columns.items()}
    month, day = _whole(columns["month"]), _whole(columns["day"])
    leaves, arrives = _whole(columns["sched_dep_time"]), _whole(columns["sched_arr_time"])
    hours = [time // 100 for time in leaves]
    seen = _weather(weather)
    before = [
        seen.get((origin, *time), [math.nan] * len(WEATHER))
        for origin, *time in zip(columns["origin"], month, day, [h - 1 for h in hours], strict=True)
    ]
    fields: dict[str, list] = {
        "weekday": [date(2013, m, d).weekday() for m, d in zip(month, day, strict=True)],
        "hour": hours,
        "minute": [time % 100 for time in leaves],
        "arrival_hour": [time // 100 for time in arrives],
        "carrier": columns["carrier"],
        "flight": columns["flight"],
        "plane": [None if plane in ABSENT else plane for plane in columns["tailnum"]],
        "origin": columns["origin"],
        "destination": columns["dest"],
        "distance": [float(miles) for miles in columns["distance"]],
        **{name: [row[i] for row in before] for i, name in enumerate(WEATHER)},
    }
    late = [_late(columns[name]) for name in DELAYS]
    return Flights(fields, np.stack(late, 1), np.array(month))


def _weather(content: bytes) -> dict[tuple, list[float]]:
    """(airport, month, day, hour of New York) -> what was measured."""
    columns = _columns(content, (*TIME, *WEATHER))
    when = zip(*(_whole(columns[name]) for name in TIME[1:]), strict=True)
    measured = zip(*(_numbers(columns[name]) for name in WEATHER), strict=True)
    return {
        (origin, *time): list(row)
        for origin, time, row in zip(columns["origin"], when, measured, strict=True)
    }


def _columns(content: bytes, names: Sequence[str]) -> dict[str, list[str]]:
    rows = csv.reader(StringIO(content.decode()))
    place = {name: i for i, name in enumerate(next(rows))}
    wanted = itemgetter(*(place[name] for name in names))
    return dict(zip(names, map(list, zip(*map(wanted, rows), strict=True)), strict=True))


def _whole(cells: Sequence[str]) -> list[int]:
    return [int(float(cell)) for cell in cells]


def _numbers(cells: Sequence[str]) -> list[float]:
    return [math.nan if cell in ABSENT else float(cell) for cell in cells]


def _late(cells: Sequence[str]) -> NDArray[np.floating]:
    delays = np.array(_numbers(cells))
    return np.where(np.isnan(delays), math.nan, delays >= LATE)
