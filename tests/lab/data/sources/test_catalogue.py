import re

import pytest

from regard.lab.data.sources import SOURCES, archive, missing


@pytest.mark.parametrize("name", SOURCES.names())
def test_records_are_pinned_to_the_byte(name):
    source = SOURCES[name]
    assert source.about and source.terms
    assert (source.installed is None) == bool(source.packages)
    for package in source.packages:
        assert re.fullmatch(r"[0-9a-f]{64}", package.sha256)
        assert package.bytes > 0 and package.version
    assert bool(source.counts) <= (source.count is not None)


def test_no_two_packages_share_a_file():
    found: dict[str, str] = {}
    for source in SOURCES.values():
        for package in source.packages:
            assert found.setdefault(package.file, package.sha256) == package.sha256


@pytest.mark.parametrize("name", [source.name for source in SOURCES.values() if source.count])
def test_what_was_fetched_holds_what_was_recorded(name):
    source = SOURCES[name]
    if missing(source):
        pytest.skip(f"{name} is not on this machine: `{source.get_command}`")
    assert source.count is not None
    assert dict(source.count(archive(name))) == dict(source.counts)
