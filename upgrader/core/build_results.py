"""What a build pod says last: the result of its cell, as a termination message."""

import msgspec

from upgrader.core.driver_matrix import CellResult

MESSAGE_BYTES = 4096
"""A kubelet reads no more of a termination message."""

_SHORT = 160


def termination_message(result: CellResult) -> bytes:
    """The result as JSON that a kubelet hands on whole: reasons are cut first, then checks that passed are left out."""
    whole = msgspec.json.encode(result)
    if len(whole) <= MESSAGE_BYTES:
        return whole
    verdicts = tuple(
        msgspec.structs.replace(one, reason=_cut(one.reason), symbols=tuple(map(_cut, one.symbols[:3])))
        for one in result.verdicts
    )
    failure = result.failure
    if failure is not None:
        failure = msgspec.structs.replace(failure, first_error=_cut(failure.first_error), symbol=_cut(failure.symbol))
    brief = msgspec.structs.replace(result, verdicts=verdicts, failure=failure, alternatives=())
    if len(msgspec.json.encode(brief)) > MESSAGE_BYTES:
        bad = [one for one in verdicts if not one.passed][:1]
        brief = msgspec.structs.replace(brief, verdicts=tuple(msgspec.structs.replace(one, symbols=()) for one in bad))
    return msgspec.json.encode(brief)


def read_message(text: str) -> CellResult | None:
    """The result in a termination message; None where there is none in it."""
    try:
        return msgspec.json.decode(text, type=CellResult)
    except msgspec.MsgspecError:
        return None


def _cut(text: str) -> str:
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
