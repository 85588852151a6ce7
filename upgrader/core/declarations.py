"""What a job declares about its checkpoints, and which of it can be used; what cannot be read is not declared."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from upgrader.core.fleet import MemberFacts

USABLE = ("file", "api", "none")
"""Methods that work; `none` says that the job cannot checkpoint at all."""

KNOWN = (*USABLE, "exec", "http", "signal")

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:\d+[dhms])+")
_PART = re.compile(r"(\d+)([dhms])")


class Declared(Struct, frozen=True, kw_only=True):
    """Annotations as they were written, empty where there is none; `veto` names one that forbids disruption."""

    method: str = ""
    timeout: str = ""
    container: str = ""
    veto: str = ""


class Method(Struct, frozen=True, kw_only=True):
    """How a gang is asked. An empty name means: it is not declared, or cannot be asked, then `problem` says why."""

    name: str = ""
    timeout_seconds: int | None = None
    problem: str = ""


def nearest(layers: Sequence[Declared]) -> Declared:
    """Each annotation from the first layer that has it: pod, then owner, then namespace."""

    def first(name: str) -> str:
        return next((value for layer in layers if (value := getattr(layer, name))), "")

    return Declared(method=first("method"), timeout=first("timeout"), container=first("container"), veto=first("veto"))


def seconds(duration: str) -> int | None:
    """`90s`, `30m`, `1h30m`, `2d` or plain seconds; None where it is none of these, or nothing."""
    if duration.isdecimal():
        return int(duration) or None
    if not _DURATION.fullmatch(duration):
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(duration)) or None


def usable(declared: Declared, members: Iterable[MemberFacts]) -> Method:
    """The first declared method that every member can be asked by."""
    if not declared.method:
        return Method()
    timeout = seconds(declared.timeout) if declared.timeout else None
    if declared.timeout and timeout is None:
        return Method(problem=f"Its checkpoint-timeout {declared.timeout!r} is no duration such as 90s, 30m or 1h30m.")
    everybody = tuple(members)
    lost = [member.pod for member in everybody if not member.container]
    if lost:
        return Method(problem=f"Its checkpoint-container {declared.container!r} is not in pod {lost[0]}.")
    problems = []
    for name in (part.strip() for part in declared.method.split(",")):
        problem = _problem(name, everybody)
        if not problem:
            return Method(name=name, timeout_seconds=timeout)
        problems.append(problem)
    return Method(problem=" ".join(problems))


def _problem(method: str, members: tuple[MemberFacts, ...]) -> str:
    if method not in KNOWN:
        return f"Its checkpoint-method {method!r} is none of {', '.join(KNOWN)}."
    if method not in USABLE:
        return f"Its checkpoint-method {method} is not supported yet."
    bare = [member.pod for member in members if not member.mounted]
    if method == "file" and bare:
        return (
            f"It declares file, but container {members[0].container} of pod {bare[0]} does not mount the downward API "
            "with checkpoint-request and park-seconds at /etc/gpu-upgrader/ and a volume at /run/checkpoint/."
        )
    return ""
