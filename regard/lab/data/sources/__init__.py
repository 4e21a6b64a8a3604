"""Where real data comes from: `archive(name)` opens a source, `regard data get NAME` fetches it."""

from regard.core import Catalog
from regard.lab.data.archives import Archive
from regard.lab.data.sources import (
    adult,
    bible_alignments,
    bible_bbe,
    bible_kjv,
    bible_sparv,
    bible_web,
    debian_descriptions,
    debian_descriptions_de,
    debian_descriptions_fr,
    debian_descriptions_it,
    digits,
    fashion_mnist,
    gettext_django,
    gettext_gcc,
    gettext_jupyterlab,
    gettext_krita,
    gettext_libreoffice,
    gettext_plone,
    gettext_pretix,
    gettext_wagtail,
    manpages,
    movielens_1m,
    newsgroups20,
    nycflights13,
    shakespeare,
    spam_assassin,
    stdlib,
)
from regard.lab.data.sources.cache import cache_folder, missing, open_source
from regard.lab.data.sources.fetch import check_licence, get
from regard.lab.data.sources.source import LICENCES, Package, Source

SOURCES: Catalog[Source] = Catalog(
    "source",
    (
        stdlib.SOURCE,
        digits.SOURCE,
        spam_assassin.SOURCE,
        newsgroups20.SOURCE,
        debian_descriptions.SOURCE,
        debian_descriptions_de.SOURCE,
        debian_descriptions_fr.SOURCE,
        debian_descriptions_it.SOURCE,
        manpages.SOURCE,
        fashion_mnist.SOURCE,
        shakespeare.SOURCE,
        bible_kjv.SOURCE,
        bible_bbe.SOURCE,
        bible_web.SOURCE,
        bible_sparv.SOURCE,
        bible_alignments.SOURCE,
        gettext_libreoffice.SOURCE,
        gettext_gcc.SOURCE,
        gettext_krita.SOURCE,
        gettext_django.SOURCE,
        gettext_wagtail.SOURCE,
        gettext_plone.SOURCE,
        gettext_pretix.SOURCE,
        gettext_jupyterlab.SOURCE,
        movielens_1m.SOURCE,
        nycflights13.SOURCE,
        adult.SOURCE,
    ),
)


def archive(name: str) -> Archive:
    """The files of a source. Raises UnknownNameError, MissingDataError (with the command that fetches it), StoredDataError."""
    return open_source(SOURCES[name])


__all__ = [
    "LICENCES",
    "SOURCES",
    "Archive",
    "Package",
    "Source",
    "archive",
    "cache_folder",
    "check_licence",
    "get",
    "missing",
]
