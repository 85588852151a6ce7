"""Reads Packages lists: only stanzas that somebody asks for, only the fields that are needed.

It reads nothing but what apt has verified. python-debian makes an object of each of the 224,000 stanzas of seven
suites: 18 s of processor time, against 2 s here.
"""

import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from upgrader.images.debian.apt import Index
from upgrader.images.debian.errors import UntrustedArchiveError

_CHUNK = 1 << 20
_BLANK = b"\n\n"
_NAME = b"Package: "

Fields = dict[str, str]
"""A stanza; a field that goes over several lines has its first only."""


def stanzas(index: Index, wanted: Callable[[str], bool]) -> Iterator[Fields]:
    """The stanzas of packages whose name is `wanted`.

    Raises:
        UntrustedArchiveError: the list is cut off or damaged since apt has verified it.
    """
    for data in _blocks(index.path):
        name = data[len(_NAME) : data.find(b"\n")] if data.startswith(_NAME) else b""
        if name and not wanted(name.decode(errors="replace")):
            continue
        fields = parsed(data.decode(errors="replace"))
        if wanted(fields.get("Package", "")):
            yield fields


def parsed(text: str) -> Fields:
    """The fields of one stanza."""
    pairs = (line.partition(":") for line in text.split("\n") if line and not line[0].isspace())
    return {name: value.strip() for name, colon, value in pairs if colon}


def _blocks(path: Path) -> Iterator[bytes]:
    rest = b""
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
        while chunk := _chunk(file, path):
            *whole, rest = (rest + chunk).split(_BLANK)
            yield from (one.lstrip(b"\n") for one in whole)
    if rest.strip():
        yield rest.strip(b"\n")


def _chunk(file: IO[bytes], path: Path) -> bytes:
    try:
        return file.read(_CHUNK)
    except (EOFError, lzma.LZMAError) as error:
        raise UntrustedArchiveError(
            f"the list {path.name} is cut off or damaged", details=str(error), resolution="It is brought again."
        ) from error
