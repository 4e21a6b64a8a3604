"""Published data sets that no package brings, read from a copy that the user has.

>>> OWN["imdb"].read(Path("~/aclImdb").expanduser())["train"].texts

`regard data show NAME --path PATH` counts a copy.
"""

from pathlib import Path
from typing import Any

from regard.core import Catalog, OptionError
from regard.lab.data.own import delimited, images, tables, texts
from regard.lab.data.own.format import Format

OWN: Catalog[Format] = Catalog(
    "format",
    (
        Format(
            name="lra_listops",
            about="Long Range Arena, ListOps: nested lists and their value",
            layout=texts.LISTOPS,
            read=texts.read_listops,
        ),
        Format(
            name="lra_aan",
            about="Long Range Arena, Retrieval: does one paper cite the other",
            layout=texts.AAN,
            read=texts.read_aan,
        ),
        Format(
            name="lra_pathfinder",
            about="Long Range Arena, Pathfinder and Path-X: are two dots joined by a dashed path",
            layout=images.PATHFINDER,
            read=images.read_pathfinder,
        ),
        Format(
            name="imdb",
            about="IMDb reviews (aclImdb), good or bad; Long Range Arena's Text",
            layout=texts.IMDB,
            read=texts.read_imdb,
        ),
        Format(
            name="cifar10",
            about="CIFAR-10 (Python version): colour pictures of ten kinds of things",
            layout=images.CIFAR10,
            read=images.read_cifar10,
        ),
        Format(
            name="mnist",
            about="MNIST and its likes, in IDX files",
            layout=images.MNIST,
            read=images.read_mnist,
        ),
        Format(
            name="enwik8",
            about="enwik8: Wikipedia as bytes, for bits per byte",
            layout=texts.ENWIK8,
            read=texts.read_enwik8,
        ),
        Format(
            name="text8",
            about="text8: Wikipedia in lower-case letters, for bits per letter",
            layout=texts.TEXT8,
            read=texts.read_text8,
        ),
        Format(
            name="hugging_face",
            about="labelled texts saved by the datasets library",
            layout=texts.HUGGING_FACE,
            read=texts.read_columns,
        ),
        Format(
            name="delimited_texts",
            about="labelled texts, in the columns text and label",
            layout=delimited.DELIMITED,
            read=delimited.read_delimited_texts,
        ),
        Format(
            name="table",
            about="rows of a table, one of whose columns is to be predicted",
            layout=delimited.DELIMITED,
            read=tables.read_table,
            count=tables.count_table,
        ),
        Format(
            name="text_file",
            about="any text, for the next byte of it: nine tenths train",
            layout=texts.TEXT_FILE,
            read=texts.read_text_file,
        ),
        Format(
            name="text_files",
            about="translations, a sentence a line",
            layout=texts.TEXT_FILES,
            read=texts.read_text_files,
            count=texts.count_pairs,
        ),
        Format(
            name="criteo",
            about="Criteo's display advertising data: was it clicked",
            layout=tables.CRITEO,
            read=tables.read_criteo_rows,
            count=tables.count_criteo,
        ),
        Format(
            name="amazon_reviews",
            about="reviews of Amazon and what the products are",
            layout=tables.AMAZON,
            read=tables.read_amazon_folder,
            count=tables.count_shop,
        ),
        Format(
            name="taobao",
            about="UserBehavior of Taobao: who looked at what",
            layout=tables.TAOBAO,
            read=tables.read_taobao_clicks,
            count=tables.count_shop,
        ),
    ),
)


def read_own(who: str, path: Path | None, form: str) -> Any:
    """Split -> its content. Raises OptionError without a path, MissingDataError and StoredDataError for a wrong one."""
    return OWN[form].read(own_path(who, path, form))


def own_path(who: str, path: Path | str | None, form: str, *, option: str = "path") -> Path:
    """The user's path. Raises OptionError, which names the expected files, where none is given."""
    if not path:
        raise OptionError(
            f"{who}: {option} must name your copy: {OWN[form].layout}. Nothing here brings this set."
        )
    return Path(path).expanduser()


__all__ = ["OWN", "Format", "own_path", "read_own"]
