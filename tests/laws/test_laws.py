"""Every law, over every entry of the catalogue, in every variant."""

import pytest

from regard.testing import LAWS, check_mixer
from tests.laws.catalogue import VARIANTS, factory


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("name", "variant", "options"),
    [pytest.param(*entry, id=f"{entry[0]}-{entry[1]}") for entry in VARIANTS],
)
def test_law(name, variant, options, law, monkeypatch):
    if variant != "default":  # block loops are counted one by one: minutes at 65,536 tokens
        monkeypatch.setattr("regard.testing.laws.complexity.HIGH", 16384)
    assert check_mixer(factory(name, options), law) == [law]
