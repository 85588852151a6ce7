"""Error messages of apt as exceptions that name the suite or the package. apt runs with English messages."""

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
from upgrader.process import FinishedProgram, ProgramTimeoutError

_FULL = os.strerror(errno.ENOSPC)
_GONE = re.compile(r"\s(404|410)\s|File not found")
_SOME = "an archive"
_NO_COMPONENT = re.compile(r"doesn't have the component '([^']*)'")
_RECEIVED = re.compile(r"Hashes of received file:.*?SHA256:([0-9a-f]{64})", re.DOTALL)
_WANTED = re.compile(r"Hashes of expected file:.*?SHA256:([0-9a-f]{64})", re.DOTALL)

# The first match gives the reason. Other messages count as an archive without an answer.
_UNSIGNED = (
    r"NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG|ERRSIG|signatures? (were|was) invalid|not signed|GPG error"
    r"|Missing key|No good signature|verification failed|isn't valid"
)
_DISTRUST = (
    (_UNSIGNED, "is not signed by a key of the keyring"),
    (r"expired|Valid-Until", "is out of date"),
    (r"not valid yet|Not live until", "is dated in the future"),
    (
        r"Hash Sum mismatch|unexpected size|Hashes of (expected|received)",
        "has lists that differ from its signed Release file",
    ),
    (r"No Hash entry|insufficient|[Ww]eak", "is signed or hashed in a way that is too weak"),
)


def judge_update(finished: FinishedProgram, suites: Sequence[str]) -> None:
    """Raise an error unless apt has verified everything.

    Raises:
        DiskFullError, ConfigurationError, UntrustedArchiveError, UnreachableArchiveError: as their descriptions.
    """
    output = finished.stderr.decode(errors="replace")
    complained = [line for line in output.splitlines() if line.startswith(("E:", "W:", "N:"))]
    if (lacking := _NO_COMPONENT.search(output)) is not None:
        raise ConfigurationError(f"an archive has no component {lacking[1]!r}", details=_join_lines(complained))
    if finished.code == 0:
        return
    if _FULL in output:
        raise DiskFullError("apt's own folder", "package lists")
    lines = _without_echoes(output.splitlines(), suites)
    for pattern, why in _DISTRUST:
        if matching := [line for line in lines if re.search(pattern, line)]:
            named = _named_suites(suites, matching) or _named_suites(suites, complained) or _SOME
            raise UntrustedArchiveError(
                f"{named} {why}; none of it was read",
                details=_join_lines(complained),
                resolution="A mirror recovers after its update. The package debian-archive-keyring contains new keys.",
            )
    if absent := [line for line in complained if "does not have a Release file" in line]:
        raise ConfigurationError(
            f"the archive has no suite {_named_suites(suites, absent)}", details=_join_lines(complained)
        )
    raise UnreachableArchiveError(
        f"{_named_suites(suites, complained) or _SOME} cannot be read",
        details=_join_lines(complained),
        resolution="The request is repeated.",
    )


def judge_download(finished: FinishedProgram, name: str, target: Path) -> None:
    """Raise an error unless apt has fetched the package.

    Raises:
        DiskFullError, MissingPackageError, HashMismatchError, UnreachableArchiveError: as their descriptions.
    """
    if finished.code == 0:
        return
    output = finished.stderr.decode(errors="replace")
    if _FULL in output:
        raise DiskFullError(target.parent, name)
    got, wanted = _RECEIVED.search(output), _WANTED.search(output)
    if got and wanted:
        raise HashMismatchError(name, wanted=wanted[1], got=got[1])
    if _GONE.search(output):
        raise MissingPackageError(
            f"the archive no longer has {name}",
            name=name,
            details=output.strip(),
            resolution="Run the discovery again: the next index contains the replacement.",
        )
    raise UnreachableArchiveError(
        f"{name} cannot be fetched", details=output.strip(), resolution="The download is repeated."
    )


def timeout_error(error: ProgramTimeoutError) -> ArchiveError:
    """The error for an archive that exceeds the time-out."""
    return UnreachableArchiveError(
        "the archive took too long", details=str(error), resolution="The request is repeated."
    )


def _without_echoes(lines: Sequence[str], suites: Sequence[str]) -> list[str]:
    """The lines without apt's claim that a suite is unsigned if it could not be fetched (503, proxy, time-out)."""
    failed = [line for line in lines if line.startswith("E: Failed to fetch") and not _is_distrust(line)]
    unread = _named_suites(suites, failed).split(", ")
    return [line for line in lines if "is not signed" not in line or _named_suites(suites, [line]) not in unread]


def _is_distrust(line: str) -> bool:
    return any(re.search(pattern, line) for pattern, _why in _DISTRUST)


def _named_suites(suites: Sequence[str], lines: Sequence[str]) -> str:
    """The suites that these lines mention."""
    marks = [
        (suite, re.compile(rf"/dists/{re.escape(suite)}/|\s{re.escape(suite)} (?:In)?Release")) for suite in suites
    ]
    return ", ".join(suite for suite, mark in marks if any(mark.search(line) for line in lines))


def _join_lines(lines: Sequence[str]) -> str:
    return "\n".join(lines)
