"""What a build says when it ends: to people, to machines, and as the termination message of a build pod."""

from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.driver_build.driver_builds import Failure, FailureClass, Identity, Verdict

MESSAGE_BYTES = 4096
"""A kubelet reads no more of a termination message."""

_SHORT = 160


class CellState(StrEnum):
    """How a cell of the matrix ended: built, not buildable, or there already; MISSING where nobody has tried yet."""

    GREEN = "green"
    RED = "red"
    UNCHANGED = "unchanged"
    MISSING = "missing"


class BuildResult(Struct, frozen=True, kw_only=True):
    """One cell's end.

    `digest` is `sha256:...` of the image, or `name@sha256:...` where it was pushed; empty where there is none.
    `alternatives` are recipes and drivers that are known to build for the kernel of a red cell.
    """

    identity: Identity
    state: CellState
    build_key: str = ""
    digest: str = ""
    seconds: float = 0.0
    checks: tuple[Verdict, ...] = ()
    failure: Failure | None = None
    alternatives: tuple[str, ...] = ()


class Refusal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a build did not begin. It names no image: the bundle of packages that would say which was not taken."""

    failure: Failure

    @property
    def final(self) -> bool:
        """Whether the same bundle would be refused again; a signature, or the right key, may come after it."""
        return self.failure.final and self.failure.kind is not FailureClass.SIGNATURE


def settled(result: BuildResult) -> bool:
    """Whether building again tomorrow is of no use; never so for an image that was built and could not be published."""
    return result.failure is None or (result.failure.final and not result.digest)


def termination_message(result: BuildResult | Refusal) -> bytes:
    """The result as JSON that a kubelet hands on whole: reasons are cut first, then checks that passed are left out."""
    whole = msgspec.json.encode(result)
    if len(whole) <= MESSAGE_BYTES:
        return whole
    if isinstance(result, Refusal):
        return msgspec.json.encode(Refusal(failure=_brief(result.failure)))
    checks = tuple(
        msgspec.structs.replace(one, reason=_cut(one.reason), symbols=one.symbols[:3]) for one in result.checks
    )
    failure = result.failure
    if failure is not None:
        failure = _brief(failure)
    brief = msgspec.structs.replace(result, checks=checks, failure=failure)
    if len(msgspec.json.encode(brief)) > MESSAGE_BYTES:
        brief = msgspec.structs.replace(brief, checks=tuple(one for one in checks if not one.passed)[:3])
    return msgspec.json.encode(brief)


def read_message(text: str) -> BuildResult | Refusal | None:
    """What `termination_message` has made; None where there is nothing of that in it."""
    return _read(text, BuildResult) or _read(text, Refusal)


_Said = TypeVar("_Said", BuildResult, Refusal)


def _read(text: str, kind: type[_Said]) -> _Said | None:
    return untrusted.document(text, kind)


def _brief(failure: Failure) -> Failure:
    return msgspec.structs.replace(failure, first_error=_cut(failure.first_error), symbol=_cut(failure.symbol))


def _cut(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
