"""Declarations of a job about its checkpoints, and the usable ones; an unreadable value is not declared."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from msgspec import Struct

from upgrader.core import timing, untrusted
from upgrader.core.endpoints import is_endpoint
from upgrader.core.model.fleet import MemberFacts, Terms
from upgrader.core.untrusted import quote_text

METHODS = ("file", "exec", "http", "signal", "api", "none")
"""Checkpoint methods; `none` declares that the job cannot checkpoint."""

SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCONT", "SIGURG", "SIGWINCH", "SIGALRM")
"""Signals that may request a checkpoint: none that is meant to end a program."""

MOST_WORDS = 1024
"""The most words of a command."""

SCOPES = ("all", "leader")
ON_DEADLINE = ("wait", "skip-node", "terminate")

LONGEST_TIMEOUT = 7 * 86400
"""Seconds: a longer checkpoint-timeout is invalid, and does not fit into a CheckpointRequest."""

LONGEST_METHOD = 63
LONGEST_COMMAND = 16384
"""Characters: longer annotations are invalid. CheckpointRequests contain them, and an address contains the command."""

_LANE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?")


class CheckpointAnnotations(Struct, frozen=True, kw_only=True):
    """Annotations as written, empty if there is none; `veto` names an annotation that forbids disruption."""

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


NOTHING = CheckpointAnnotations()


class Method(Struct, frozen=True, kw_only=True):
    """How a gang is requested to checkpoint. An empty name: not declared, or not usable, with the `problem`."""

    name: str = ""
    timeout_seconds: int | None = None
    problem: str = ""
    terms: Terms = Terms()


class DeclaredTimes(Struct, frozen=True, kw_only=True):
    """When a gang may be stopped and when it ends, as far as declared; an unreadable value declares nothing."""

    min_runtime_seconds: int = 0
    ends_at: datetime | None = None


def nearest_declared(layers: Sequence[CheckpointAnnotations]) -> CheckpointAnnotations:
    """Each annotation from the first layer that has it: pod, then owner, then namespace."""
    declaring = [layer for layer in layers if layer != NOTHING]
    if len(declaring) < 2:  # nearly always, and there are thousands of pods
        return declaring[0] if declaring else NOTHING

    def first(name: str) -> str:
        return next((value for layer in declaring if (value := getattr(layer, name))), "")

    return CheckpointAnnotations(**{name: first(name) for name in CheckpointAnnotations.__struct_fields__})


def parse_seconds(text: str) -> int | None:
    """`90s`, `30m`, `1h30m`, `2d` or plain seconds; None if it is another text, empty, or over ten years."""
    return untrusted.parse_duration(text) or None


def declared_times(
    declared: CheckpointAnnotations,
    starts: Iterable[datetime],
    limit: datetime | None = None,
    estimate: datetime | None = None,
) -> DeclaredTimes:
    """The declared time slice and end of a gang.

    Args:
        declared: its annotations.
        starts: when its members' pods started; all its work counts from the latest.
        limit: when its owner ends it, whatever it declares (a Job's activeDeadlineSeconds).
        estimate: its end as its owner estimates it; used if nothing is declared.
    """
    latest = max(starts, default=None)
    expected = parse_seconds(declared.expected_runtime)
    ends = untrusted.parse_instant(declared.expected_completion)
    if ends is None and expected is not None and latest is not None:
        ends = timing.add_seconds(latest, expected)
    known = [end for end in (ends or estimate, limit) if end is not None]
    return DeclaredTimes(
        min_runtime_seconds=untrusted.parse_duration(declared.min_runtime) or 0, ends_at=min(known, default=None)
    )


def usable_method(declared: CheckpointAnnotations, members: Iterable[MemberFacts]) -> Method:
    """The declared methods that every member supports, in their order; the first is tried first."""
    if not declared.method:
        return Method()
    for unreadable in _unreadable_values(declared):
        return Method(problem=unreadable)
    present = tuple(members)
    lost = [member.pod for member in present if not member.container]
    if lost:
        return Method(problem=f"Its checkpoint-container {quote_text(declared.container)} is not in pod {lost[0]}.")
    first = find_leader(present)
    asked = (first,) if declared.scope == "leader" and first is not None else present
    listed = dict.fromkeys(part.strip() for part in declared.method.split(","))
    problems = {name: _method_problem(name, declared, asked) for name in listed}
    good = [name for name, problem in problems.items() if not problem]
    if not good:
        return Method(problem=" ".join(problems.values()))
    return Method(
        name=good[0],
        timeout_seconds=parse_seconds(declared.timeout),
        terms=_declared_terms(declared, [] if good[0] == "none" else [name for name in good if name != "none"]),
    )


def parse_command(command: str) -> tuple[str, ...]:
    """The words of a command in JSON; empty if it is invalid."""
    words = untrusted.read_json(command, list[str]) if len(command) <= LONGEST_COMMAND else None
    return tuple(words) if words and words[0] and not any("\0" in word for word in words) else ()


def find_leader(members: Iterable[MemberFacts]) -> MemberFacts | None:
    """The member that answers for all: rank 0, else the first by name."""
    return min(members, key=lambda member: (member.rank is None, member.rank or 0, member.pod), default=None)


def _declared_terms(declared: CheckpointAnnotations, methods: Sequence[str]) -> Terms:
    return Terms(
        methods=tuple(methods),
        command=parse_command(declared.command),
        endpoint=declared.endpoint,
        signal=declared.signal,
        ack_scope=declared.scope or SCOPES[0],
        max_loss_seconds=untrusted.parse_duration(declared.max_loss) or 0,
        on_deadline=declared.on_deadline or ON_DEADLINE[0],
    )


def _unreadable_values(declared: CheckpointAnnotations) -> Iterable[str]:
    """Why values are invalid; a job with an invalid value gets no request, since it may mean another one."""
    for name, value, least, longest, most in (
        ("checkpoint-timeout", declared.timeout, 1, LONGEST_TIMEOUT, "a week"),
        ("min-runtime", declared.min_runtime, 0, untrusted.LONGEST_SECONDS, "ten years"),
        ("expected-runtime", declared.expected_runtime, 1, untrusted.LONGEST_SECONDS, "ten years"),
        ("max-loss", declared.max_loss, 0, untrusted.LONGEST_SECONDS, "ten years"),
    ):
        length = untrusted.parse_duration(value, longest)
        if value and (length is None or length < least):
            yield f"Its {name} {quote_text(value)} is not a duration such as 90s, 30m or 1h30m, {most} at most."
    if declared.expected_completion and untrusted.parse_instant(declared.expected_completion) is None:
        yield (
            f"Its expected-completion-time {quote_text(declared.expected_completion)} is not a time such as "
            "2026-11-21T18:00:00Z or 2026-11-21T18:00:00+01:00, of the years 1970 to 8999."
        )
    if len(declared.method) > LONGEST_METHOD:
        yield f"Its checkpoint-method {quote_text(declared.method)} is longer than {LONGEST_METHOD} characters."
    for name, value, choices in (
        ("ack-scope", declared.scope, SCOPES),
        ("on-deadline", declared.on_deadline, ON_DEADLINE),
    ):
        if value and value not in choices:
            yield f"Its {name} {quote_text(value)} is not one of {', '.join(choices)}."
    if declared.lane and not _LANE.fullmatch(declared.lane):
        yield (
            f"Its checkpoint-lane {quote_text(declared.lane)} may contain only letters, digits, '-', '_', '.' and '/'."
        )
    if declared.path and not (declared.path.startswith("/") and ".." not in declared.path.split("/")):
        yield f"Its checkpoint-path {quote_text(declared.path)} is not an absolute path without '..' (such as /data)."


def _method_problem(method: str, declared: CheckpointAnnotations, members: tuple[MemberFacts, ...]) -> str:
    if method not in METHODS:
        return f"Its checkpoint-method {quote_text(method)} is not one of {', '.join(METHODS)}."
    check = _PROBLEMS.get(method)
    return check(declared, members) if check is not None else ""


def _file_problem(_: CheckpointAnnotations, members: tuple[MemberFacts, ...]) -> str:
    bare = [member.pod for member in members if not member.mounted]
    if not bare:
        return ""
    return (
        f"It declares file, but container {members[0].container} of pod {bare[0]} does not mount the downward API "
        "with checkpoint-request and park-seconds at /etc/gpu-upgrader/ and a volume at /run/checkpoint/."
    )


def _exec_problem(declared: CheckpointAnnotations, _: tuple[MemberFacts, ...]) -> str:
    if 0 < len(parse_command(declared.command)) <= MOST_WORDS:
        return ""
    fault = f"{quote_text(declared.command)} is not a JSON list of strings" if declared.command else "is missing"
    return f'It declares exec, but its checkpoint-command {fault}; write a JSON list such as ["/app/save", "--now"].'


def _http_problem(declared: CheckpointAnnotations, _: tuple[MemberFacts, ...]) -> str:
    if is_endpoint(declared.endpoint):
        return ""
    fault = f"{quote_text(declared.endpoint)} is none" if declared.endpoint else "is missing"
    return f"It declares http, but its checkpoint-endpoint {fault}; write port and path, such as :8080/checkpoint."


def _signal_problem(declared: CheckpointAnnotations, members: tuple[MemberFacts, ...]) -> str:
    if declared.signal not in SIGNALS:
        fault = (
            f"{quote_text(declared.signal)} is not one of {', '.join(SIGNALS)}." if declared.signal else "is missing."
        )
        return f"It declares signal, but its checkpoint-signal {fault}"
    shared = [member.pod for member in members if member.shares_processes]
    if shared:
        return f"It declares signal, but pod {shared[0]} shares its process namespace: process 1 is not its program."
    bare = [member.pod for member in members if not member.answers_mounted]
    if bare:
        return f"It declares signal, but pod {bare[0]} does not mount a volume at /run/checkpoint/ for the answer."
    return ""


_PROBLEMS: Mapping[str, Callable[[CheckpointAnnotations, tuple[MemberFacts, ...]], str]] = MappingProxyType(
    {"file": _file_problem, "exec": _exec_problem, "http": _http_problem, "signal": _signal_problem}
)
