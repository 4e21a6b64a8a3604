import gzip

from regard.lab.data.archives import Archive
from regard.lab.data.manual import Page, count_manual, read_manual

ROOT = "usr/share/man/"
FILES = {
    "man2/open.2": ".TH open 2\n.SH NAME\nopen\n.SH TEXT\nas\n.BR read (2)\nand lost(2)\n"
    ".SH SEE ALSO\n.BR creat (2),\n.BR BIO_new (3),\n.BR open (2),\n.BR lost (8)\n",
    "man2/read.2": ".TH read 2\n.SH NAME\nread\n.SH SEE ALSO\nopenat(2)\n",
    "man2/creat.2": ".so man2/chain.2\n",
    "man3/BIO_new.3ssl": ".TH BIO 3SSL\n.SH NAME\nBIO\n",
}
LINKS = {"man2/chain.2": "read.2", "man2/openat.2": "../man2/open.2", "man2/gone.2": "no.2"}


class Pages(Archive):
    label = "pages"

    def names(self):
        return [f"{ROOT}{name}.gz" for name in FILES]

    def links(self):
        return {f"{ROOT}{name}.gz": f"{target}.gz" for name, target in LINKS.items()}

    def _content(self, name):
        return gzip.compress(FILES[name.removeprefix(ROOT).removesuffix(".gz")].encode())


def test_references_are_followed_through_other_names_and_taken_out_of_the_text():
    manual = read_manual(Pages())
    assert list(manual.pages) == ["BIO_new(3ssl)", "open(2)", "read(2)"]
    assert manual.pages["open(2)"] == Page("open", "2", "NAME\nopen\nTEXT\nas  and lost(2)")
    assert manual.pages["read(2)"].text == "NAME\nread"
    assert manual.links == [
        ("open(2)", "BIO_new(3ssl)"),
        ("open(2)", "read(2)"),
        ("read(2)", "open(2)"),
    ]


def test_names_that_lead_nowhere_do_not_count():
    counted = count_manual(Pages())
    assert counted["pages"] == 3
    assert counted["other names"] == 3
    assert (counted["directed links"], counted["linked pairs"], counted["linked pages"]) == (
        3,
        2,
        3,
    )
