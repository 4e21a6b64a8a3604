"""Two files of which line n translates line n, as WMT's: `regard.lab.data.pairs` reads them."""

from pathlib import Path

from regard.core import StoredDataError
from regard.lab.data.checks import need
from regard.lab.data.own.format import Format, Parts
from regard.lab.data.pairs import read_parallel

LAYOUT = "a folder with two files train.*, such as train.en and train.de, and so for valid and test if you have these"


def read(path: Path) -> Parts:
    """Pairs in the order of the files' names; which side is the source, a task is told."""
    found = {
        part: sorted(need(path, LAYOUT).glob(f"{part}.*")) for part in ("train", "valid", "test")
    }
    for part, files in found.items():
        if len(files) != 2 and (files or part == "train"):
            raise StoredDataError(f"{path} has {len(files)} files {part}.*. Expected: {LAYOUT}")
    return {part: read_parallel(*files) for part, files in found.items() if files}


def _count(pairs: list) -> dict[str, int]:
    return {"pairs": len(pairs)}


FORMAT = Format(
    name="text_files",
    about="translations, a sentence a line",
    layout=LAYOUT,
    read=read,
    count=_count,
)
