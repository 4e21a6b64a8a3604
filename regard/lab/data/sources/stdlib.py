"""The source text of the Python standard library that runs us."""

from regard.lab.data.sources.source import Source
from regard.lab.data.stdlib import stdlib_root

SOURCE = Source(
    name="stdlib",
    about="source text of the Python standard library",
    licence="E",
    terms="PSF-2.0",
    installed=stdlib_root,
)
