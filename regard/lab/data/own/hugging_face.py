"""Labelled texts saved to disk by the `datasets` library of Hugging Face (`save_to_disk`), which must be installed."""

from pathlib import Path
from typing import Any

import numpy as np

from regard.core import MissingDataError, StoredDataError, UnknownNameError
from regard.lab.data.checks import need
from regard.lab.data.labelled import Texts
from regard.lab.data.own.format import Format, Parts

LAYOUT = "a folder written by Dataset.save_to_disk or DatasetDict.save_to_disk"


def read(path: Path) -> Parts:
    return read_columns(path)


def read_columns(path: Path, *, text: str = "text", label: str = "label") -> Parts:
    """The split names are those of the folder; a data set without splits is "all".

    Raises MissingDataError without the library, UnknownNameError for a column that is not there.
    """
    need(path, LAYOUT)
    try:
        import datasets
    except ImportError:
        raise MissingDataError(
            f"{path} is read by the package datasets, which is not installed: `pip install datasets`"
        ) from None
    try:
        found = datasets.load_from_disk(str(path))
    except FileNotFoundError as error:
        raise StoredDataError(f"{path} is no saved data set: {error}") from None
    parts = found if isinstance(found, dict) else {"all": found}
    return {str(name): _texts(part, text, label) for name, part in parts.items()}


def _texts(part: Any, text: str, label: str) -> Texts:
    for name in (text, label):
        if name not in part.column_names:
            raise UnknownNameError("column", name, part.column_names)
    numbers = np.array(part[label][:], dtype=np.int64)
    names = getattr(part.features[label], "names", None)
    classes = names or [str(number) for number in range(int(numbers.max(initial=-1)) + 1)]
    return Texts([words.encode() for words in part[text]], numbers, tuple(classes))


FORMAT = Format(
    name="hugging_face",
    about="labelled texts saved by the datasets library",
    layout=LAYOUT,
    read=read,
)
