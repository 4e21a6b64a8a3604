"""Generated data are made once for equal options, and what was altered on disk is refused."""

import numpy as np
import pytest

from regard.core import StoredDataError
from regard.lab.data import generated as module
from regard.lab.data.generated import generated, path_of

OPTIONS = {"count": 3, "seed": 0}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    monkeypatch.setattr(module, "WORTH_KEEPING", 10)
    return tmp_path


def make(value=1):
    return lambda: {"a": np.arange(5) + value, "b": np.zeros((2, 3), np.uint8)}


def never():
    raise AssertionError("made again")


def test_made_once_for_equal_options_and_little_is_not_kept(folder, monkeypatch):
    first, again = generated("thing", OPTIONS, make()), generated("thing", OPTIONS, never)
    assert first.keys() == again.keys() and again["b"].dtype == np.uint8
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert generated("thing", OPTIONS | {"seed": 1}, make(7))["a"][0] == 7
    assert generated("else", OPTIONS, make(9))["a"][0] == 9
    kept = len(list(folder.rglob("*.npz")))
    monkeypatch.setattr(module, "WORTH_KEEPING", 1000)
    generated("little", OPTIONS, make())
    assert len(list(folder.rglob("*.npz"))) == kept == 3


def test_a_shortened_file_is_refused_and_named():
    generated("thing", OPTIONS, make())
    path = path_of("thing", OPTIONS)
    content = path.read_bytes()
    for left in (len(content) - 9, 100, 0):
        path.write_bytes(content[:left])
        with pytest.raises(StoredDataError, match=f"{path} is not as it was .* Remove it,"):
            generated("thing", OPTIONS, never)
    path.unlink()
    generated("thing", OPTIONS, make())
    generated("thing", OPTIONS, never)
