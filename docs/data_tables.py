"""The tables of docs/data.md, from the catalogues of sources and of formats."""

from regard.lab.data.own import OWN
from regard.lab.data.sources import SOURCES


def sources() -> str:
    """One row for each source of real data."""
    lines = ["| source | what | licence | packages | MB | holds |", "|---|---|---|---|---|---|"]
    for source in SOURCES:
        packages = ", ".join(f"{package.name} {package.version}" for package in source.packages)
        holds = ", ".join(f"{count:,} {what}" for what, count in source.counts.items())
        lines.append(
            f"| `{source.name}` | {source.about} | {source.licence}: {source.terms} "
            f"| {packages or 'installed'} | {source.megabytes:.1f} | {holds or '-'} |"
        )
    return "\n".join(lines)


def own_copies() -> str:
    """One row for each format that is read from a user's own copy."""
    rows = [f"| `{form.name}` | {form.about} | {form.layout} |" for form in OWN]
    return "\n".join(["| format | what | path |", "|---|---|---|", *rows])
