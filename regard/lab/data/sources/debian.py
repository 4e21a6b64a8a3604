"""apt-get with lists, configuration and release of our own: no right of an administrator, no change to the machine.

The release is named, so that a machine with another Debian, or Ubuntu, gets the same packages; so is the
architecture, because the index differs between them.
"""

from pathlib import Path

RELEASE = "bookworm"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_URL = "http://deb.debian.org/debian"


def apt_options(state: Path, languages: tuple[str, ...]) -> list[str]:
    """Write the configuration under `state`, and return the options that make apt-get use it."""
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (state / "sources.list").write_text(f"deb {signed}{_URL} {RELEASE} main\n")
    wanted = " ".join(f'"{language}";' for language in languages or ("none",))
    lines = [
        "#clear Acquire::Languages;",
        f"Acquire::Languages {{ {wanted} }};",
        'Acquire::GzipIndexes "false";',
        'APT::Architecture "amd64";',
        "#clear APT::Architectures;",
        'APT::Architectures { "amd64"; };',
        'APT::Get::List-Cleanup "false";',
        'APT::Sandbox::User "";',
        f'Dir::Etc::SourceList "{state}/sources.list";',
        'Dir::Etc::SourceParts "-";',
        f'Dir::State::Lists "{state}/lists";',
        f'Dir::Cache "{state}/cache";',
    ]
    (state / "apt.conf").write_text("\n".join(lines) + "\n")
    return [f"--config-file={state}/apt.conf"]


def index_file(state: Path, name: str) -> Path | None:
    """`Packages` or `Translation-de`, as apt-get update left it."""
    found = sorted((state / "lists").glob(f"*_{RELEASE}_main_*_{name}"))
    return found[0] if found else None
