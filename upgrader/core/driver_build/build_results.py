"""Results of builds, for users and programs, and as the termination message of a build pod."""

from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass, Identity, Verdict

MESSAGE_BYTES = 4096
"""A kubelet reads at most this much of a termination message."""

_SHORT = 160


class CellState(StrEnum):
    """The state of a cell of the matrix: built, not buildable, or existing already; MISSING before the first build."""

    GREEN = "green"
    RED = "red"
    UNCHANGED = "unchanged"
    MISSING = "missing"


class BuildResult(Struct, frozen=True, kw_only=True):
    """The result of one cell.

    `digest` is `sha256:...` of the image, or `name@sha256:...` if it was pushed; empty if there is none.
    `alternatives` are recipes and drivers that have built for the kernel of a red cell.
    """

    identity: Identity
    state: CellState
    build_key: str = ""
    digest: str = ""
    seconds: float = 0.0
    checks: tuple[Verdict, ...] = ()
    failure: BuildFailure | None = None
    alternatives: tuple[str, ...] = ()


class BuildRefusal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a build did not begin. It names no image: the bundle of packages, which names it, was not accepted."""

    failure: BuildFailure

    @property
    def final(self) -> bool:
        """Whether the same bundle would be refused again; its signature, or the right key, may be late."""
        return self.failure.final and self.failure.kind is not FailureClass.SIGNATURE


def is_settled(result: BuildResult) -> bool:
    """Whether another build would not change the result; never for an image that was built but not published."""
    return result.failure is None or (result.failure.final and not result.digest)


def termination_message(result: BuildResult | BuildRefusal) -> bytes:
    """The result as JSON within a kubelet's limit: reasons are cut first, then checks that passed are omitted."""
    whole = msgspec.json.encode(result)
    if len(whole) <= MESSAGE_BYTES:
        return whole
    if isinstance(result, BuildRefusal):
        return msgspec.json.encode(BuildRefusal(failure=_shorten_failure(result.failure)))
    checks = tuple(
        msgspec.structs.replace(check, reason=_shorten_text(check.reason), symbols=check.symbols[:3])
        for check in result.checks
    )
    failure = result.failure
    if failure is not None:
        failure = _shorten_failure(failure)
    brief = msgspec.structs.replace(result, checks=checks, failure=failure)
    if len(msgspec.json.encode(brief)) > MESSAGE_BYTES:
        brief = msgspec.structs.replace(brief, checks=tuple(check for check in checks if not check.passed)[:3])
    return msgspec.json.encode(brief)


def read_message(text: str) -> BuildResult | BuildRefusal | None:
    """The value that `termination_message` encoded; None if the text contains none."""
    return _read_as(text, BuildResult) or _read_as(text, BuildRefusal)


_Message = TypeVar("_Message", BuildResult, BuildRefusal)


def _read_as(text: str, kind: type[_Message]) -> _Message | None:
    return untrusted.read_json(text, kind)


def _shorten_failure(failure: BuildFailure) -> BuildFailure:
    return msgspec.structs.replace(
        failure, first_error=_shorten_text(failure.first_error), symbol=_shorten_text(failure.symbol)
    )


def _shorten_text(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
