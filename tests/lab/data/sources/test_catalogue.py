import re

import pytest

from regard.lab.data.sources import SOURCES


@pytest.mark.parametrize("name", SOURCES.names())
def test_records_are_pinned_to_the_byte(name):
    source = SOURCES[name]
    assert source.about and source.terms
    for package in source.packages:
        assert re.fullmatch(r"[0-9a-f]{64}", package.sha256)
        assert package.bytes > 0 and package.version


def test_no_two_packages_share_a_file():
    found: dict[str, str] = {}
    for source in SOURCES.values():
        for package in source.packages:
            assert found.setdefault(package.file, package.sha256) == package.sha256
