"""Suites whose question is a published claim: `regard arena NAME` runs one, `regard report --finding NAME` draws its page.

`regard.lab.findings.finding` says how one is written, with an example.
"""

from regard.core import Catalog
from regard.lab.findings import (
    coordinates,
    documents,
    explain,
    flash,
    gates,
    heads,
    lra,
    mad,
    memory,
    norms,
    positions,
    random_weights,
    recall,
    synthesizer,
    tables,
)
from regard.lab.findings.finding import (
    Claim,
    Entry,
    Expected,
    Finding,
    Fitted,
    above,
    below,
    near,
    reaches,
    stays_below,
)
from regard.lab.findings.run import Tally, run_finding

FINDINGS: Catalog[Finding] = Catalog(
    "finding",
    (
        recall.RECALL,
        mad.MAD,
        random_weights.RANDOM,
        positions.POSITIONS,
        norms.NORMS,
        flash.FLASH,
        synthesizer.SYNTHESIZER,
        lra.LRA,
        gates.GATES,
        tables.TABLES,
        documents.DOCUMENTS,
        heads.HEADS,
        memory.MEMORY,
        explain.EXPLAIN,
        coordinates.COORDINATES,
    ),
)

__all__ = [
    "FINDINGS",
    "Claim",
    "Entry",
    "Expected",
    "Finding",
    "Fitted",
    "Tally",
    "above",
    "below",
    "near",
    "reaches",
    "run_finding",
    "stays_below",
]
