"""What apt says when something is wrong, as errors that name the suite or the package. apt is run in English."""

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.errors import (
    ArchiveError,
    DiskFullError,
    HashMismatchError,
    MissingPackageError,
    UnreachableArchiveError,
    UntrustedArchiveError,
)
from upgrader.process import Finished, ProgramTimeoutError

_FULL = os.strerror(errno.ENOSPC)
_GONE = re.compile(r"\s(404|410)\s|File not found")
_SOME = "an archive"
_NO_COMPONENT = re.compile(r"doesn't have the component '([^']*)'")
_RECEIVED = re.compile(r"Hashes of received file:.*?SHA256:([0-9a-f]{64})", re.DOTALL)
_WANTED = re.compile(r"Hashes of expected file:.*?SHA256:([0-9a-f]{64})", re.DOTALL)

# The first that matches tells why. What is not in the list is no answer: doubt holds.
_UNSIGNED = (
    r"NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG|ERRSIG|signatures? (were|was) invalid|not signed|GPG error"
    r"|Missing key|No good signature|verification failed|isn't valid"
)
_DISTRUST = (
    (_UNSIGNED, "is not signed by a key of the keyring"),
    (r"expired|Valid-Until", "is out of date"),
    (r"not valid yet|Not live until", "is dated in the future"),
    (r"Hash Sum mismatch|unexpected size|Hashes of (expected|received)", "has lists that are not what it signed"),
    (r"No Hash entry|insufficient|[Ww]eak", "is signed or hashed in a way that is too weak"),
)


def judge_update(finished: Finished, suites: Sequence[str]) -> None:
    """Nothing when apt has verified everything.

    Raises:
        DiskFullError, ConfigurationError, UntrustedArchiveError, UnreachableArchiveError: as they say.
    """
    said = finished.stderr.decode(errors="replace")
    complained = [line for line in said.splitlines() if line.startswith(("E:", "W:", "N:"))]
    if (lacking := _NO_COMPONENT.search(said)) is not None:
        raise ConfigurationError(f"an archive has no component {lacking[1]!r}", details=_whole(complained))
    if finished.code == 0:
        return
    if _FULL in said:
        raise DiskFullError("apt's own folder", "package lists")
    lines = _without_echoes(said.splitlines(), suites)
    for pattern, why in _DISTRUST:
        if matching := [line for line in lines if re.search(pattern, line)]:
            raise UntrustedArchiveError(
                f"{_named(suites, matching) or _named(suites, complained) or _SOME} {why}; nothing of it was read",
                details=_whole(complained),
                resolution="A mirror in the middle of an update heals; new keys come with debian-archive-keyring.",
            )
    if absent := [line for line in complained if "does not have a Release file" in line]:
        raise ConfigurationError(f"the archive has no suite {_named(suites, absent)}", details=_whole(complained))
    raise UnreachableArchiveError(
        f"{_named(suites, complained) or _SOME} cannot be read",
        details=_whole(complained),
        resolution="It is asked again; nothing is decided without it.",
    )


def judge_download(finished: Finished, name: str, target: Path) -> None:
    """Nothing when apt has fetched the package.

    Raises:
        DiskFullError, MissingPackageError, HashMismatchError, UnreachableArchiveError: as they say.
    """
    if finished.code == 0:
        return
    said = finished.stderr.decode(errors="replace")
    if _FULL in said:
        raise DiskFullError(target.parent, name)
    got, wanted = _RECEIVED.search(said), _WANTED.search(said)
    if got and wanted:
        raise HashMismatchError(name, wanted=wanted[1], got=got[1])
    if _GONE.search(said):
        raise MissingPackageError(
            f"the archive does not have {name} any more",
            name=name,
            details=said.strip(),
            resolution="Discover again: what replaces it is in the next index.",
        )
    raise UnreachableArchiveError(f"{name} cannot be fetched", details=said.strip(), resolution="It is tried again.")


def too_slow(error: ProgramTimeoutError) -> ArchiveError:
    """An archive that took too long."""
    return UnreachableArchiveError("the archive took too long", details=str(error), resolution="It is asked again.")


def _without_echoes(lines: Sequence[str], suites: Sequence[str]) -> list[str]:
    """Without apt's calling a suite unsigned whose signed index it just failed to fetch (503, proxy, time-out)."""
    failed = [line for line in lines if line.startswith("E: Failed to fetch") and not _distrusts(line)]
    unread = _named(suites, failed).split(", ")
    return [line for line in lines if "is not signed" not in line or _named(suites, [line]) not in unread]


def _distrusts(line: str) -> bool:
    return any(re.search(pattern, line) for pattern, _why in _DISTRUST)


def _named(suites: Sequence[str], lines: Sequence[str]) -> str:
    """The suites that these lines are about."""
    marks = [
        (suite, re.compile(rf"/dists/{re.escape(suite)}/|\s{re.escape(suite)} (?:In)?Release")) for suite in suites
    ]
    return ", ".join(suite for suite, mark in marks if any(mark.search(line) for line in lines))


def _whole(lines: Sequence[str]) -> str:
    return "\n".join(lines)
