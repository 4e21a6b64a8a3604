"""The 8x8 digits that scikit-learn brings along."""

from importlib.util import find_spec
from pathlib import Path

from regard.core import MissingDataError
from regard.lab.data.sources.rows import rows_of
from regard.lab.data.sources.source import Source


def _folder() -> Path:
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise MissingDataError("digits come with scikit-learn: `pip install scikit-learn`")
    return Path(found.origin).parent / "datasets" / "data"


SOURCE = Source(
    name="digits",
    about="1,797 grey pictures of digits",
    licence="E",
    terms="CC BY 4.0 (UCI), package BSD-3-Clause",
    installed=_folder,
    counts={"pictures": 1797},
    count=rows_of(pictures="digits.csv.gz"),
)
