"""Adult: rows of the census of 1994, as UCI gives them (Becker and Kohavi 1996)."""

import csv
from io import StringIO

COLUMNS = (
    *("age", "workclass", "weight", "education", "education_years", "marital_status"),
    *("occupation", "relationship", "race", "sex", "capital_gain", "capital_loss"),
    *("hours", "country", "income"),
)
NUMBERS = ("age", "weight", "education_years", "capital_gain", "capital_loss", "hours")


def parse_adult(content: bytes) -> dict[str, list]:
    """Of adult-uci.csv, each row once: words, floats, and None where the file has a question mark."""
    rows = csv.reader(StringIO(content.decode()), skipinitialspace=True)
    once = list(dict.fromkeys(tuple(row) for row in rows if row))
    columns = dict(zip(COLUMNS, zip(*once, strict=True), strict=True))
    return {
        name: [float(cell) for cell in column]
        if name in NUMBERS
        else [None if cell == "?" else cell for cell in column]
        for name, column in columns.items()
    }
