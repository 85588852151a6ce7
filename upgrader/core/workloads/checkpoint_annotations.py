"""What a job declares about its checkpoints, and which of it can be used; what cannot be read is not declared."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from msgspec import Struct

from upgrader.core import timing, untrusted
from upgrader.core.endpoints import is_endpoint
from upgrader.core.model.fleet import MemberFacts, Terms
from upgrader.core.untrusted import shown

KNOWN = ("file", "exec", "http", "signal", "api", "none")
"""Methods; `none` says that the job cannot checkpoint at all."""

SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCONT", "SIGURG", "SIGWINCH", "SIGALRM")
"""Signals by which a program may be asked: none that is meant to end it."""

MOST_WORDS = 1024
"""Of a command."""

SCOPES = ("all", "leader")
ON_DEADLINE = ("wait", "skip-node", "terminate")

LONGEST_TIMEOUT = 7 * 86400
"""Seconds: more is no checkpoint-timeout, and fits into no CheckpointRequest."""

LONGEST_METHOD = 63
LONGEST_COMMAND = 16384
"""Characters of annotations: more is none. They go into CheckpointRequests, and the command into an address."""

_LANE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?")


class Declared(Struct, frozen=True, kw_only=True):
    """Annotations as they were written, empty where there is none; `veto` names one that forbids disruption."""

    method: str = ""
    command: str = ""
    endpoint: str = ""
    signal: str = ""
    container: str = ""
    scope: str = ""
    timeout: str = ""
    min_runtime: str = ""
    expected_runtime: str = ""
    expected_completion: str = ""
    max_loss: str = ""
    on_deadline: str = ""
    lane: str = ""
    path: str = ""
    veto: str = ""


NOTHING = Declared()


class Method(Struct, frozen=True, kw_only=True):
    """How a gang is asked. An empty name means: it is not declared, or cannot be asked, then `problem` says why."""

    name: str = ""
    timeout_seconds: int | None = None
    problem: str = ""
    terms: Terms = Terms()


class TimesDeclared(Struct, frozen=True, kw_only=True):
    """When a gang may be stopped and when it ends, as far as it says; what cannot be read says nothing."""

    min_runtime_seconds: int = 0
    ends_at: datetime | None = None


def nearest(layers: Sequence[Declared]) -> Declared:
    """Each annotation from the first layer that has it: pod, then owner, then namespace."""
    said = [layer for layer in layers if layer != NOTHING]
    if len(said) < 2:  # nearly always, and there are thousands of pods
        return said[0] if said else NOTHING

    def first(name: str) -> str:
        return next((value for layer in said if (value := getattr(layer, name))), "")

    return Declared(**{name: first(name) for name in Declared.__struct_fields__})


def seconds(text: str) -> int | None:
    """`90s`, `30m`, `1h30m`, `2d` or plain seconds; None where it is none of these, nothing, or over ten years."""
    return untrusted.duration(text) or None


def times(
    declared: Declared,
    starts: Iterable[datetime],
    limit: datetime | None = None,
    estimate: datetime | None = None,
) -> TimesDeclared:
    """The declared time slice and end of a gang.

    Args:
        declared: its annotations.
        starts: when its members' pods started; all its work is counted from the latest.
        limit: when its owner ends it whatever it declares (a Job's activeDeadlineSeconds).
        estimate: when its owner thinks that it ends; where nothing is declared.
    """
    latest = max(starts, default=None)
    expected = seconds(declared.expected_runtime)
    ends = untrusted.instant(declared.expected_completion)
    if ends is None and expected is not None and latest is not None:
        ends = timing.after(latest, expected)
    known = [one for one in (ends or estimate, limit) if one is not None]
    return TimesDeclared(
        min_runtime_seconds=untrusted.duration(declared.min_runtime) or 0, ends_at=min(known, default=None)
    )


def usable(declared: Declared, members: Iterable[MemberFacts]) -> Method:
    """The declared methods that every member can be asked by, in their order; the first is tried first."""
    if not declared.method:
        return Method()
    for unreadable in _unreadable(declared):
        return Method(problem=unreadable)
    everybody = tuple(members)
    lost = [member.pod for member in everybody if not member.container]
    if lost:
        return Method(problem=f"Its checkpoint-container {shown(declared.container)} is not in pod {lost[0]}.")
    first = leader(everybody)
    asked = (first,) if declared.scope == "leader" and first is not None else everybody
    listed = dict.fromkeys(part.strip() for part in declared.method.split(","))
    problems = {name: _problem(name, declared, asked) for name in listed}
    good = [name for name, problem in problems.items() if not problem]
    if not good:
        return Method(problem=" ".join(problems.values()))
    return Method(
        name=good[0],
        timeout_seconds=seconds(declared.timeout),
        terms=_terms(declared, [] if good[0] == "none" else [name for name in good if name != "none"]),
    )


def argv(command: str) -> tuple[str, ...]:
    """A command as JSON argv; empty where it is none."""
    found = untrusted.document(command, list[str]) if len(command) <= LONGEST_COMMAND else None
    return tuple(found) if found and found[0] and not any("\0" in one for one in found) else ()


def leader(members: Iterable[MemberFacts]) -> MemberFacts | None:
    """The member that answers for all: rank 0, else the first by name."""
    return min(members, key=lambda one: (one.rank is None, one.rank or 0, one.pod), default=None)


def _terms(declared: Declared, methods: Sequence[str]) -> Terms:
    return Terms(
        methods=tuple(methods),
        command=argv(declared.command),
        endpoint=declared.endpoint,
        signal=declared.signal,
        ack_scope=declared.scope or SCOPES[0],
        max_loss_seconds=untrusted.duration(declared.max_loss) or 0,
        on_deadline=declared.on_deadline or ON_DEADLINE[0],
    )


def _unreadable(declared: Declared) -> Iterable[str]:
    """Why one of the values cannot be meant; a job with such a value is not asked, it might mean something else."""
    for name, value, least, longest, most in (
        ("checkpoint-timeout", declared.timeout, 1, LONGEST_TIMEOUT, "a week"),
        ("min-runtime", declared.min_runtime, 0, untrusted.LONGEST_SECONDS, "ten years"),
        ("expected-runtime", declared.expected_runtime, 1, untrusted.LONGEST_SECONDS, "ten years"),
        ("max-loss", declared.max_loss, 0, untrusted.LONGEST_SECONDS, "ten years"),
    ):
        found = untrusted.duration(value, longest)
        if value and (found is None or found < least):
            yield f"Its {name} {shown(value)} is no duration such as 90s, 30m or 1h30m, {most} at most."
    if declared.expected_completion and untrusted.instant(declared.expected_completion) is None:
        yield (
            f"Its expected-completion-time {shown(declared.expected_completion)} is no time such as "
            "2026-11-21T18:00:00Z or 2026-11-21T18:00:00+01:00, of the years 1970 to 8999."
        )
    if len(declared.method) > LONGEST_METHOD:
        yield f"Its checkpoint-method {shown(declared.method)} is longer than {LONGEST_METHOD} characters."
    for name, value, choices in (
        ("ack-scope", declared.scope, SCOPES),
        ("on-deadline", declared.on_deadline, ON_DEADLINE),
    ):
        if value and value not in choices:
            yield f"Its {name} {shown(value)} is none of {', '.join(choices)}."
    if declared.lane and not _LANE.fullmatch(declared.lane):
        yield f"Its checkpoint-lane {shown(declared.lane)} is no name of letters, digits, '-', '_', '.' and '/'."
    if declared.path and not (declared.path.startswith("/") and ".." not in declared.path.split("/")):
        yield f"Its checkpoint-path {shown(declared.path)} is no absolute path without '..', such as /data/checkpoints."


def _problem(method: str, declared: Declared, members: tuple[MemberFacts, ...]) -> str:
    if method not in KNOWN:
        return f"Its checkpoint-method {shown(method)} is none of {', '.join(KNOWN)}."
    check = _PROBLEMS.get(method)
    return check(declared, members) if check is not None else ""


def _file(_: Declared, members: tuple[MemberFacts, ...]) -> str:
    bare = [member.pod for member in members if not member.mounted]
    if not bare:
        return ""
    return (
        f"It declares file, but container {members[0].container} of pod {bare[0]} does not mount the downward API "
        "with checkpoint-request and park-seconds at /etc/gpu-upgrader/ and a volume at /run/checkpoint/."
    )


def _exec(declared: Declared, _: tuple[MemberFacts, ...]) -> str:
    if 0 < len(argv(declared.command)) <= MOST_WORDS:
        return ""
    said = f"{shown(declared.command)} is no such list" if declared.command else "is missing"
    return f'It declares exec, but its checkpoint-command {said}; write a JSON list such as ["/app/save", "--now"].'


def _http(declared: Declared, _: tuple[MemberFacts, ...]) -> str:
    if is_endpoint(declared.endpoint):
        return ""
    said = f"{shown(declared.endpoint)} is none" if declared.endpoint else "is missing"
    return f"It declares http, but its checkpoint-endpoint {said}; write port and path, such as :8080/checkpoint."


def _signal(declared: Declared, members: tuple[MemberFacts, ...]) -> str:
    if declared.signal not in SIGNALS:
        said = f"{shown(declared.signal)} is none of {', '.join(SIGNALS)}." if declared.signal else "is missing."
        return f"It declares signal, but its checkpoint-signal {said}"
    shared = [member.pod for member in members if member.shares_processes]
    if shared:
        return f"It declares signal, but pod {shared[0]} shares its process namespace: process 1 is not its program."
    bare = [member.pod for member in members if not member.answers_mounted]
    if bare:
        return f"It declares signal, but pod {bare[0]} does not mount a volume at /run/checkpoint/ for the answer."
    return ""


_PROBLEMS: Mapping[str, Callable[[Declared, tuple[MemberFacts, ...]], str]] = MappingProxyType(
    {"file": _file, "exec": _exec, "http": _http, "signal": _signal}
)
