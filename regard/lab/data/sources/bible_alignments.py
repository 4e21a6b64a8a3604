"""The Greek New Testament (SBLGNT) and the Berean Standard Bible, words aligned by hand."""

from regard.lab.data.sources.rows import rows_of
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="bible_alignments",
    about="Greek and English with word alignments by hand",
    licence="E",
    terms="alignments and SBLGNT CC BY 4.0, Berean Standard Bible public domain",
    packages=(
        Package(
            channel="pypi",
            name="bible-alignments",
            version="0.4.2",
            file="bible_alignments-0.4.2-py3-none-any.whl",
            sha256="84f6b15e706657777824aac811567cb5cb2b38ad2b94497209f5f3c3f67b0984",
            bytes=8807345,
        ),
    ),
    counts={
        "greek": 137742,
        "english": 201137,
    },
    count=rows_of(
        greek="data/sources/SBLGNT.tsv",
        english="data/eng/targets/BSB/nt_BSB.tsv",
    ),
)
