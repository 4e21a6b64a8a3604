"""Readers of Python source."""

from itertools import islice

import pytest

from regard.core import OptionError
from regard.lab.data.pairs import Pair, unique
from regard.lab.data.python_source import read_docstrings, read_modules, stdlib_root, summary_of
from regard.lab.data.splits import split_of


@pytest.fixture
def library(tmp_path):
    files = {
        "a.py": "x = 1\n",
        "copy_of_a.py": "x = 1\n",
        "empty.py": "\n",
        "pack/b.py": "y = 2\n",
        "pack/tests/c.py": "z = 3\n",
        "site-packages/d.py": "w = 4\n",
        "_sysconfigdata__linux.py": "v = 5\n",
        "config-3.11/e.py": "u = 6\n",
        "notes.txt": "no source",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_what_is_read_and_what_is_left_out(library):
    assert read_modules(library) == {"a.py": b"x = 1\n", "pack/b.py": b"y = 2\n"}


def test_a_folder_without_source_is_named(tmp_path):
    with pytest.raises(OptionError, match=f"no Python source under {tmp_path}"):
        read_modules(tmp_path)


def test_the_real_library_has_no_text_twice_and_no_test():
    modules = read_modules(stdlib_root())
    assert len(set(modules.values())) == len(modules) > 300
    assert "json/decoder.py" in modules
    assert not any("test" in name.split("/")[:-1] for name in modules)


def test_splits_go_by_name_in_tenths():
    names = [f"package/module{i}.py" for i in range(4000)]
    shares = {
        part: [split_of(name) for name in names].count(part) / 4000
        for part in ("train", "valid", "test")
    }
    assert shares["train"] == pytest.approx(0.8, abs=0.03)
    assert shares["valid"] == pytest.approx(0.1, abs=0.02)
    assert shares["test"] == pytest.approx(0.1, abs=0.02)


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


def test_a_part_of_the_standard_library_has_a_thousand():
    part = dict(islice(read_modules(stdlib_root()).items(), 250))
    pairs = unique(read_docstrings(part))
    assert len(pairs) > 1000
    assert all(pair.target not in pair.source or len(pair.target) < 60 for pair in pairs[:200])
