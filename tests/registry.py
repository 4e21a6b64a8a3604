"""Small packages of each kind, written by the tests themselves."""

import gzip
import io
import lzma
import os
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path

from regard.lab.data.sources.table import Package, Source

FILES = {"data/a.txt": b"first", "data/b.txt": b"second"}


def packed(files: dict[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


def tar(files=FILES, links=None) -> bytes:
    """ "./data/a.txt" and so on, as dpkg names them; links are symbolic."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(f"./{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return buffer.getvalue()


def tgz(files=FILES) -> bytes:
    return gzip.compress(tar(files), mtime=0)


def deb(files=FILES, links=None, data="data.tar.xz") -> bytes:
    """An ar file of three members; the second has an odd size, and so a byte of filling behind it."""
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd"}
    members[data] = lzma.compress(tar(files, links))
    content = b"!<arch>\n"
    for name, body in members.items():
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode()
        content += body + b"\n" * (len(body) % 2)
    return content


def wheel(files=FILES) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("data/"), "")
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def package(file: str, content: bytes, channel="npm", name="toy") -> Package:
    return Package(channel, name, "1.0", file, len(content), sha256(content).hexdigest())


def source(*packages: Package, licence="E") -> Source:
    return Source(name="toys", about="toys", licence=licence, terms="for play", packages=packages)


def client(folder: Path, name: str, script: str) -> None:
    """A shell script in the place of a package client."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    os.chmod(path, 0o755)
