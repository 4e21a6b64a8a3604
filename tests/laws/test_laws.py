"""Every law, over every entry of the catalogue, in every variant."""

import pytest

from regard.testing import LAWS, check_mixer
from tests.laws.catalogue import VARIANTS, factory

LATE = {  # variants whose cost shows its growth only towards 65,536 tokens
    ("reformer", "factorised"),
    ("reformer", "both_sides"),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("name", "variant", "options"),
    [pytest.param(*entry, id=f"{entry[0]}-{entry[1]}") for entry in VARIANTS],
)
def test_law(name, variant, options, law, monkeypatch):
    if variant != "default" and (name, variant) not in LATE:  # block loops take long to count
        monkeypatch.setattr("regard.testing.laws.complexity.HIGH", 16384)
    assert check_mixer(factory(name, options), law) == [law]
