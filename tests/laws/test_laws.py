"""Every law, over every entry of the catalogue, in every variant."""

import pytest

from regard.testing import LAWS, check_mixer
from tests.laws.catalogue import VARIANTS, factory


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param(name, options, id=f"{name}-{variant}") for name, variant, options in VARIANTS],
)
def test_law(name, options, law):
    assert check_mixer(factory(name, options), law) == [law]
