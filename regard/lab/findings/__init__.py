"""Published claims as code: `regard arena module:NAME` runs a Finding, `regard report --finding module:NAME` draws its page.

`regard.lab.findings.finding` says how one is written, with an example.
"""

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

__all__ = [
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
