"""Every law, over every entry of the catalogue, in every variant."""

import pytest

from regard.testing import LAWS, check_mixer
from tests.laws.catalogue import VARIANTS, factory, laws_of

CASES = [
    pytest.param(name, variant, options, law, id=f"{name}-{variant}-{law}")
    for name, variant, options in VARIANTS
    for law in laws_of(name, variant, options)
]


@pytest.mark.parametrize(("name", "variant", "options", "law"), CASES)
def test_law(name, variant, options, law, record_property):
    (verdict,) = check_mixer(factory(name, options), law).verdicts
    worst = max(verdict.errors, default=0.0)
    record_property("law", [name, law, verdict.outcome, len(verdict.errors), worst])
    assert verdict.law == law and verdict.outcome != "failed"
    assert bool(verdict.sentence) == (verdict.outcome != "passed")
    assert "reset_parameters" not in verdict.sentence  # the library's own start as they were built


def test_a_variant_is_asked_about_what_its_options_change():
    asked = {variant[:2]: laws_of(*variant) for variant in VARIANTS}
    assert asked["local", "narrow"] == ["reference", "streaming", "long"]
    of_numbers = {"free_length", "low_precision", "finite", "autocast"}
    assert of_numbers <= {*asked["local", "grouped"]}
    assert of_numbers <= {*asked["linear", "softplus"]}
    assert {"refusals", "causality"} <= {*asked["performer", "published"]}
    assert all(found == [*LAWS] for (_, variant), found in asked.items() if variant == "default")
