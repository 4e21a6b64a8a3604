"""A quick run reaches the tests of what has changed, and no others."""

from tests.quick import chosen


def test_a_changed_mixer_reaches_its_laws_and_tests():
    tests, mixers = chosen({"regard/mixers/rfa.py"})
    assert mixers == ["head_groups", "rfa"]  # the first is built from any others
    assert "tests/mixers/test_rfa.py" in tests and "tests/nn/test_dice.py" not in tests


def test_a_changed_kernel_reaches_the_mixers_that_import_it():
    _, mixers = chosen({"regard/mixers/_recurrent.py"})
    assert {"linear", "performer", "rfa"} <= set(mixers) and "fnet" not in mixers


def test_a_changed_oracle_or_law_reaches_laws_and_no_change_reaches_nothing():
    assert chosen({"regard/reference/global_.py"})[1] == ["global"]
    assert len(chosen({"regard/testing/laws/batch.py"})[1]) > 30
    assert chosen(set()) == ([], [])
