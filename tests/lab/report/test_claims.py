"""Published claims: none that was listed once vanishes, and pages that the engine did not make are named."""

import json
import re
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "docs/findings"
KEPT = json.loads((FOLDER / "claims.json").read_text())
VERDICTS = {"agrees", "disagrees", "withdrawn", "cannot tell", "not run"}
EVER = 106  # claims; a claim that was listed once never vanishes
FROZEN = (
    "recall mad random positions norms flash synthesizer lra gates tables documents heads memory"
)
FROZEN = {*FROZEN.split(), "explain", "coordinates", "conversion"}
"""Pages of the engine before; this set never grows."""


def told_claims(name):
    page = (FOLDER / f"{name}.md").read_text()
    return re.findall(r"^- \*\*(.+?)\*\* \(", page, re.M)


def test_every_claim_is_listed_with_its_source_page_and_verdict_and_every_picture_is_shown():
    claims, frozen = KEPT["claims"], KEPT["frozen"]
    assert len({c["claim"] for c in claims}) == len(claims)
    before = [(page, c["claim"]) for c in claims for page, _ in c.get("before", ())]
    listed = before + [(c["page"], c["claim"]) for c in claims if c["page"] in frozen]
    assert len({*listed}) == len(listed) == EVER
    told = {(name, text) for name in frozen for text in told_claims(name)}
    assert told == {(page, text) for page, text in listed if page in frozen}
    for one in claims:
        assert one["claim"] and one["source"] and one["verdict"] in VERDICTS
        page = (FOLDER / f"{one['page']}.md").read_text()
        told = f"**{one['claim']}** ({one['source']})"
        if one["page"] not in frozen:
            told = f"- **{one['verdict']}**: {one['claim']} ({one['source']}"
        assert told in page
        assert one["verdict"] != "withdrawn" or f"*withdrawn: {one['why']}*" in page
    for picture in FOLDER.glob("*.svg"):
        assert f"]({picture.name})" in picture.with_suffix(".md").read_text(), picture.name


def test_the_list_of_frozen_pages_only_shrinks_and_each_says_so():
    assert set(KEPT["frozen"]) <= FROZEN
    kept = {path.stem for path in FOLDER.glob("*.md")} & FROZEN
    assert kept == set(KEPT["frozen"])  # a page that was replaced is gone
    for name in kept:
        page = (FOLDER / f"{name}.md").read_text()
        assert "> Frozen, not redone yet." in page


@pytest.mark.parametrize("name", KEPT["frozen"])
def test_a_commit_that_a_page_names_exists(name):
    root = FOLDER.parent.parent
    git = ["git", "-C", str(root)]
    if subprocess.run([*git, "cat-file", "-e", "HEAD"], capture_output=True).returncode:
        pytest.skip("no history beside these files")
    commits = re.findall(r"\b[0-9a-f]{12}\b", (FOLDER / f"{name}.md").read_text())
    for commit in commits:
        told = subprocess.run([*git, "merge-base", "--is-ancestor", commit, "HEAD"])
        assert told.returncode == 0, commit
    assert commits or "measured before 3d0f470" in (FOLDER / f"{name}.md").read_text()
