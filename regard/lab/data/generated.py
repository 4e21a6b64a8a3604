"""Generated data: made once for equal options, kept on disk."""

import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core import Options, StoredDataError
from regard.core.files import text_sha256, whole
from regard.lab.data.owners import locked
from regard.lab.data.sources.fetch import cache_folder


@contextmanager
def bar(who: str, total: int) -> Iterator[Callable[[int], None]]:
    """Tell it how many are done; it is drawn on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"{who}: generating {total:,}", total=total)
        yield lambda done: progress.update(task, completed=done)


Arrays = dict[str, NDArray[Any]]


WORTH_KEEPING = 1_000_000  # bytes
_DAMAGED = (OSError, ValueError, RuntimeError, LookupError, EOFError, zipfile.BadZipFile)


def generated(name: str, options: Options, make: Callable[[], Arrays]) -> Arrays:
    """The arrays that `make` returns, from disk where they were made before for equal options; every reading is checked.

        $REGARD_DATA/generated/listops-<hash>.npz

    The hash is that of the name and of everything that the data depends on; `options` hold JSON values. The file gets its name
    in one step, so that a kill leaves all of it or nothing. Less than a megabyte is not kept.

    Raises StoredDataError naming the file that is not as it was written.
    """
    path = path_of(name, options)
    if not path.exists():
        with locked(path.with_name(name)):
            if not path.exists():  # no other process was faster
                columns = make()
                if sum(column.nbytes for column in columns.values()) >= WORTH_KEEPING:
                    with whole(path) as partial, partial.open("wb") as file:
                        np.savez(file, allow_pickle=False, **columns)
                return columns
    return _read(path)


def path_of(name: str, options: Options) -> Path:
    """The file of this data."""
    text = json.dumps([name, options], sort_keys=True)
    return cache_folder() / "generated" / f"{name}-{text_sha256(text)[:16]}.npz"


def _read(path: Path) -> Arrays:
    try:
        with zipfile.ZipFile(path) as members, np.load(path, allow_pickle=False) as columns:
            if members.testzip() is None:  # by the checksum of each member
                return dict(columns)
    except _DAMAGED:
        pass
    raise StoredDataError(
        f"{path} is not as it was generated: cut short or altered. Remove it, and it is generated anew."
    )
