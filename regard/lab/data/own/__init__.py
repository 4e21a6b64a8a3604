"""Data sets that no package brings, read from a copy that the user has: `regard data show NAME --path PATH` counts one.

>>> OWN["imdb"].read(Path("~/aclImdb").expanduser())["train"].texts
"""

from regard.core import Catalog
from regard.lab.data.own import (
    cifar10,
    criteo,
    enwik8,
    hugging_face,
    imdb,
    lra_aan,
    lra_listops,
    lra_pathfinder,
    mnist,
    shops,
    text8,
    text_files,
)
from regard.lab.data.own.format import Format

OWN: Catalog[Format] = Catalog(
    "format",
    (
        lra_listops.FORMAT,
        lra_aan.FORMAT,
        lra_pathfinder.FORMAT,
        imdb.FORMAT,
        cifar10.FORMAT,
        mnist.FORMAT,
        enwik8.FORMAT,
        text8.FORMAT,
        hugging_face.FORMAT,
        text_files.FORMAT,
        criteo.FORMAT,
        shops.AMAZON_REVIEWS,
        shops.TAOBAO_CLICKS,
    ),
)

__all__ = ["OWN", "Format"]
