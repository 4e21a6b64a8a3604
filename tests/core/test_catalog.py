"""A catalogue is a Mapping of names to entries, in the order in which they are listed."""

from collections import ChainMap
from collections.abc import Mapping

import pytest

import regard
from regard import MIXERS, UnknownNameError
from regard.nn import NORMS

CATALOGUES = (MIXERS, NORMS, regard.POOLS, regard.SCORES, regard.POSITIONS, regard.MODELS)


@pytest.mark.parametrize("entries", CATALOGUES, ids=lambda entries: entries.kind)
def test_a_catalogue_is_a_mapping_of_names_to_entries(entries):
    assert isinstance(entries, Mapping)
    assert list(entries) == entries.names() == list(entries.keys()) == [*dict(entries)]
    assert len(entries) == len(entries.values()) == len(entries.items())
    for name, entry in entries.items():
        assert entry.name == name and name in entries and entries[name] is entry
        assert entries.get(name) is entry
    assert entries._ipython_key_completions_() == entries.names()


def test_an_unknown_name_is_a_value_error_and_a_key_error_with_the_near_name():
    assert "liner" not in MIXERS and ["linear"] not in MIXERS
    assert MIXERS.get("liner") is None and MIXERS.get("liner", 3) == 3
    with pytest.raises(UnknownNameError) as unknown:
        MIXERS["liner"]
    assert str(unknown.value) == "unknown mixer 'liner'. Did you mean 'linear'?"
    assert isinstance(unknown.value, ValueError) and isinstance(unknown.value, KeyError)
    assert ChainMap(MIXERS, {"mine": 1})["mine"] == 1  # which asks the next map after a KeyError
