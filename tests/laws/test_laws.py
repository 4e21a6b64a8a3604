"""Every law, over every entry of the catalogue, in every variant."""

import pytest

from regard.testing import check_mixer
from tests.laws.catalogue import VARIANTS, factory, laws_of

CASES = [
    pytest.param(name, variant, options, law, id=f"{name}-{variant}-{law}")
    for name, variant, options in VARIANTS
    for law in laws_of(name, variant, options)
]


@pytest.mark.parametrize(("name", "variant", "options", "law"), CASES)
def test_law(name, variant, options, law, record_property, request):
    whole = variant == "default" or request.config.getoption("--whole")
    (verdict,) = check_mixer(factory(name, options), law, variant=not whole).verdicts
    record_property(
        "law", [name, law, verdict.outcome, len(verdict.errors), max(verdict.errors, default=0.0)]
    )
    assert verdict.law == law and verdict.outcome != "failed"
    assert bool(verdict.sentence) == (verdict.outcome != "passed")
    assert "reset_parameters" not in verdict.sentence  # the library's own start as they were built


def test_options_that_are_sizes_leave_the_graph_as_it_is():
    left_out = {
        (name, variant)
        for name, variant, options in VARIANTS
        if "compiled" not in laws_of(name, variant, options)
    }
    assert ("local", "narrow") in left_out and ("linformer", "narrow") not in left_out
    assert not any(variant == "default" for _, variant in left_out)


def test_the_shorter_form_takes_more_draws_where_one_is_not_enough():
    """Routing's clusters of one draw leave out keys that meet in another, which the law asks for."""
    assert check_mixer(factory("routing", {}), "sensitivity", variant=True) == ["sensitivity"]
