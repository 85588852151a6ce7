"""Lints of checkpoint requests: settings that prevent a request, or invalidate its acknowledgement.

torchrun: pytorch #119856 (30 s with any grace), #172596 (--shutdown-timeout), #154849 (signals that it forwards).
"""

import shlex
from collections.abc import Iterator, Sequence

from upgrader.core import untrusted
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.lint_facts import Check, GangLintFacts, MemberSettings, ProgramFacts, make_advice
from upgrader.core.workloads.checkpoint_annotations import parse_seconds

ASKED_BEFORE = frozenset({"file", "exec", "http", "api"})
"""Methods by which a job parks before any signal is sent to its processes."""

TORCHRUN_SECONDS = 30
"""How long torchrun waits between SIGTERM and SIGKILL by default."""


def _lint_undeclared(facts: GangLintFacts) -> Iterator[Advice]:
    if facts.gang.method or facts.gang.undeclared_because or facts.gang.replicated or facts.methods:
        return
    yield make_advice(
        facts,
        Check.UNDECLARED,
        Severity.WARNING,
        "It has GPUs and declares no checkpoint method: its nodes wait until it ends.",
        "Declare gpu-upgrader.io/checkpoint-method, see docs/guides/job-authors/checkpointing.md.",
    )


def _lint_unreadable(facts: GangLintFacts) -> Iterator[Advice]:
    problem = facts.gang.undeclared_because
    if not problem or _not_mounted(facts):
        return
    yield make_advice(
        facts,
        Check.UNREADABLE,
        Severity.PROBLEM,
        f"{problem} An unreadable declaration does not count: its nodes wait until it ends.",
        "Correct the annotation on the pod template, and start the job again from its checkpoint.",
    )


def _lint_unknown_annotation(facts: GangLintFacts) -> Iterator[Advice]:
    names = sorted({name for member in facts.members for name in member.strange_annotations})
    if names:
        yield make_advice(
            facts,
            Check.UNKNOWN_ANNOTATION,
            Severity.PROBLEM,
            f"It has unknown annotations with the operator's prefix: {', '.join(names)}.",
            "docs/reference/labels-annotations-taints.md lists the known ones; correct the names.",
        )


def _not_mounted(facts: GangLintFacts) -> list[str]:
    return [member.pod for member in facts.members if not member.mounted] if "file" in facts.methods else []


def _lint_file_not_mounted(facts: GangLintFacts) -> Iterator[Advice]:
    bare = _not_mounted(facts)
    if bare:
        other = facts.gang.method
        yield make_advice(
            facts,
            Check.FILE_NOT_MOUNTED,
            Severity.WARNING if other else Severity.PROBLEM,
            f"It declares file, but pod {bare[0]} lacks the downward-API volume at "
            f"/etc/gpu-upgrader/ (no subPath) or the volume at /run/checkpoint/; "
            + (f"method {other} is used instead." if other else "it counts as undeclared."),
            "Add both volumes to the pod template, see docs/guides/job-authors/checkpointing.md, "
            "or let the admission policy do it.",
        )


def _lint_ephemeral(facts: GangLintFacts) -> Iterator[Advice]:
    if not ASKED_BEFORE.intersection(facts.methods) and "signal" not in facts.methods:
        return
    for member in facts.members:
        named = _checkpoint_paths(member)
        lost = [
            path
            for path in named
            if _is_under(path, member.ephemeral_paths) and not _is_under(path, member.volume_paths)
        ]
        if lost:
            message = f"Its checkpoint path {lost[0]} lies on a volume that is deleted with pod {member.pod}."
            severity = Severity.PROBLEM
        elif not named and not member.volume_paths and not _writes_elsewhere(member):
            message = f"Pod {member.pod} mounts no volume that outlives it, so its checkpoints are deleted with it."
            severity = Severity.WARNING
        else:
            continue
        yield make_advice(
            facts,
            Check.EPHEMERAL_CHECKPOINT,
            severity,
            f"{message} Such an acknowledgement does not count (AckOnEphemeralStorage), so the job is never stopped.",
            "Write checkpoints to a PersistentVolumeClaim, NFS or an object store.",
        )
        return


def _checkpoint_paths(member: MemberSettings) -> list[str]:
    """Absolute paths in options and variables with `checkpoint` in their name."""
    paths = []
    for program in member.programs:
        words = _split_words(program.words)
        for at, word in enumerate(words):
            name, equals, value = word.partition("=")
            if _about_checkpoints(name):
                paths.append(value if equals else next(iter(words[at + 1 : at + 2]), ""))
        paths += [value for name, value in program.environment.items() if _about_checkpoints(name)]
    return [path for path in paths if path.startswith("/")]


def _about_checkpoints(name: str) -> bool:
    low = name.lower().replace("-", "_")
    return any(part in low for part in ("checkpoint", "ckpt", "save_dir")) and "/" not in name


def _writes_elsewhere(member: MemberSettings) -> bool:
    """Whether its command or environment contains an address, such as that of an object store for its checkpoints."""
    texts = [text for program in member.programs for text in (*program.words, *program.environment.values())]
    return any("://" in text for text in texts)


def _is_under(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _lint_torchrun(facts: GangLintFacts) -> Iterator[Advice]:
    if ASKED_BEFORE.intersection(facts.methods):
        return  # it is parked before SIGTERM is sent, so that no work is left to be saved in these seconds
    for member in facts.members:
        program = next((candidate for candidate in member.programs if _runs_torchrun(candidate)), None)
        if program is None:
            continue
        signalled = "signal" in facts.methods
        wait = _shutdown_timeout(program)
        if not signalled and wait is not None and wait >= member.grace_seconds:
            return
        allowed, grace = TORCHRUN_SECONDS if wait is None else wait, member.grace_seconds
        message = (
            "torchrun forwards only SIGTERM, SIGINT, SIGHUP and SIGQUIT, which end its workers."
            if signalled
            else f"torchrun kills its workers {allowed} s after SIGTERM, whatever the grace of {grace} s."
        )
        yield make_advice(
            facts,
            Check.TORCHRUN,
            Severity.WARNING,
            f"{message} A checkpoint that takes longer is lost.",
            "Declare a method that precedes the signal (file, exec, http), or set --shutdown-timeout "
            "(TORCH_ELASTIC_SHUTDOWN_TIMEOUT) to the grace period if your PyTorch supports it.",
        )
        return


def _runs_torchrun(program: ProgramFacts) -> bool:
    words = _split_words(program.words)
    return any(
        word.rpartition("/")[2] == "torchrun" or word in {"torch.distributed.run", "torch.distributed.launch"}
        for word in words
    )


def _shutdown_timeout(program: ProgramFacts) -> int | None:
    """In seconds, from the option or else from the variable; None if neither is a whole number."""
    words = _split_words(program.words)
    text = program.environment.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "")
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == "--shutdown-timeout":
            text = value if equals else next(iter(words[at + 1 : at + 2]), "")
    return untrusted.parse_whole(text)


def _split_words(words: Sequence[str]) -> list[str]:
    """Words of a command, with those of `sh -c '...'`."""
    parts: list[str] = []
    for word in words:
        try:
            parts += shlex.split(word, comments=True) if " " in word or "\n" in word else [word]
        except ValueError:  # a shell could not parse it either; its parts still name the program
            parts += word.split()
    return parts


def _lint_grace(facts: GangLintFacts) -> Iterator[Advice]:
    timeout = parse_seconds(facts.declared.timeout) if facts.declared.timeout else None
    short = min(facts.members, key=lambda member: member.grace_seconds, default=None)
    if timeout is None or short is None or short.grace_seconds >= timeout:
        return
    signalled = bool(facts.methods) and facts.methods[0] == "signal"
    yield make_advice(
        facts,
        Check.GRACE,
        Severity.PROBLEM if signalled else Severity.WARNING,
        f"Pod {short.pod} is killed {short.grace_seconds} s after SIGTERM, and a checkpoint may take {timeout} s. "
        + (
            "Its method is signal."
            if signalled
            else "The operator requests a checkpoint first; a preemption or a manual drain does not."
        ),
        f"Set terminationGracePeriodSeconds to {timeout} or more.",
    )


CHECKS = (
    _lint_undeclared,
    _lint_unreadable,
    _lint_unknown_annotation,
    _lint_file_not_mounted,
    _lint_ephemeral,
    _lint_torchrun,
    _lint_grace,
)
