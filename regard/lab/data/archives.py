"""Packages read as archives: a wheel, a source archive, a Debian package or a single file.

Nothing is installed, unpacked to disk or imported. A package is opened only after its size and SHA-256 were found to be those recorded.
"""

import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60  # name 16, time 12, owner 6, group 6, mode 8, size 10, two bytes of end


def open_archive(path: Path, name: str) -> dict[str, bytes]:
    """Name -> content of the regular files, no links, of a .whl, .zip, .tar.gz, .tgz or .deb; of anything else as one file called `name`."""
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as packed:
            return {one: packed.read(one) for one in packed.namelist() if one[-1] != "/"}
    content = path.read_bytes()
    if path.suffix not in (".gz", ".tgz", ".deb"):
        return {name: content}
    files: dict[str, bytes] = {}
    raw = BytesIO(_deb_data(content) if path.suffix == ".deb" else content)
    with tarfile.open(fileobj=raw) as tar:
        for member in tar:
            if (opened := tar.extractfile(member)) and not member.issym():
                files[member.name.removeprefix("./")] = opened.read()
    return files


def _deb_data(content: bytes) -> bytes:
    """A .deb is an `ar` file; its member data.tar.* holds the package's files (deb(5))."""
    at = len(_AR_MAGIC)
    while not content.startswith(b"data.tar", at):
        at += _AR_HEADER + (size := int(content[at + 48 : at + 58])) + size % 2
    start = at + _AR_HEADER
    return content[start : start + int(content[at + 48 : at + 58])]
