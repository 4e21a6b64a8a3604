from regard.lab.data.pairs import Pair, unique
from regard.lab.data.python_source import read_docstrings, read_modules, stdlib_root, summary_of

SOURCE = '''
class Shelf:
    @property
    def width(self, unit="cm"):
        """Return the width
        of the shelf.

        In centimetres.
        """
        # measured

        return self._width

    def short(self):
        """Too short."""
        return 1

    def empty(self):
        """Nothing but a docstring is here."""

    def example(self):
        """>>> Shelf().example() is an example"""
        return 1

    def line(self): "A docstring on the line of def"; return 1

    def joined(self):
        """A docstring that shares its line with code"""; x = 1
        return x

    async def read(self,
                   size):
        "Read so many books."
        async def inner():
            """Read one of the books."""
            return 1
        return await inner()
'''


def test_functions_and_their_first_paragraphs():
    form_feed = "x = 1\n\x0c\n" + SOURCE
    for source in (SOURCE, form_feed, SOURCE.replace("\n", "\r\n")):
        assert read_docstrings(
            {"shelf.py": source.encode(), "bad.py": b"def (", "no.py": b"\xff"}
        ) == [
            Pair(
                'def width(self, unit="cm"):\n    # measured\n    return self._width',
                "Return the width of the shelf.",
                "shelf.py",
            ),
            Pair(
                "async def read(self,\n               size):\n    async def inner():\n"
                '        """Read one of the books."""\n        return 1\n    return await inner()',
                "Read so many books.",
                "shelf.py",
            ),
            Pair("async def inner():\n    return 1", "Read one of the books.", "shelf.py"),
        ]


def test_summary_is_the_first_paragraph_in_one_line():
    assert summary_of("  One\n  two.\n \n  Three.") == "One two."


def test_the_standard_library_has_thousands():
    pairs = unique(read_docstrings(read_modules(stdlib_root())))
    assert len(pairs) > 3000
    assert all(pair.target not in pair.source or len(pair.target) < 60 for pair in pairs[:200])
