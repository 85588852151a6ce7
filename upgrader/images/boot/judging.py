"""Parses the console of a boot check, and decides whether the check passes. Pure."""

import errno
import os
import re
from collections.abc import Mapping, Sequence

from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.images.boot.values import Boot, ModuleLoad
from upgrader.images.modules.values import ModuleFile

UNEQUIPPED: Mapping[str, tuple[int, str]] = {
    "nvidia": (errno.ENODEV, "No NVIDIA GPU found"),
    # it works only if another vendor's network driver was available when it was compiled
    "nvidia_peermem": (errno.EINVAL, "module compiled without IB peer memory symbols"),
}
"""The result of a valid module that finds no device: its errno, and a text that it prints."""

_TIME = re.compile(r"^\[ *\d+\.\d+\] ")
_LINE = re.compile(r"boot-check: (loading|loaded|end)(?: (\S+))?(?: errno=(\d+))?")
_LINES_SHOWN = 12


def parse_loads(console: str) -> tuple[tuple[ModuleLoad, ...], bool]:
    """The loads that a console reports, and whether the list was processed to its end."""
    loads: list[ModuleLoad] = []
    waiting: str | None = None
    output: list[str] = []
    finished = False
    for printed in console.splitlines():
        line = _TIME.sub("", printed.strip())
        match = _LINE.fullmatch(line)
        if match is None:
            output.append(line)
        elif match[1] == "loading":
            waiting, output = str(match[2]), []
        elif match[1] == "loaded" and waiting is not None and match[2] == waiting:
            loads.append(ModuleLoad(file=waiting, errno=int(match[3] or 0), printed=tuple(output)))
            waiting = None
        else:
            finished = finished or match[1] == "end"
    if waiting is not None:
        loads.append(ModuleLoad(file=waiting, errno=None, printed=tuple(output)))
    return tuple(loads), finished


def judge_boot(boot: Boot, shipped: Sequence[ModuleFile], companions: Sequence[str] = ()) -> Verdict:
    """Decide whether the kernel accepted every shipped module.

    A module that reports a missing device passes. A module that imports from it and is therefore rejected (ENOENT:
    unknown symbol) cannot be tested, since the first module was not kept. Every other rejection fails the check: the
    kernel checks format and signature first. In-tree modules and `companions` (file names) must have been accepted,
    too.
    """
    accepted, refused, unanswered = _sort_answers(boot, shipped)
    unanswered += [f"{file} was not loaded" for file in companions if file not in {load.file for load in boot.loads}]
    if refused or unanswered or not boot.finished:
        return _failed_verdict(boot, [*refused, *unanswered])
    reason = f"{'; '.join(accepted)} ({boot.release}, {boot.accelerator}, {boot.seconds:.1f} s)"
    return Verdict(check=CheckName.BOOT, passed=True, reason=reason)


def is_undecided(boot: Boot, shipped: Sequence[ModuleFile]) -> bool:
    """Whether a boot gives no result about the modules: it was cut short, not by the kernel, which had rejected none.

    The machine exceeded the time-out, or ended early without a panic. Another attempt may end differently.
    """
    _, refused, _ = _sort_answers(boot, shipped)
    return not boot.finished and not refused and not _panic_line(boot)


def _sort_answers(boot: Boot, shipped: Sequence[ModuleFile]) -> tuple[list[str], list[str], list[str]]:
    """Texts about valid modules, about modules that the kernel rejected, and about modules without a result."""
    answers = {load.file: load for load in boot.loads}
    absent: set[str] = set()
    accepted: list[str] = []
    refused: list[str] = []
    unanswered: list[str] = []
    for module in shipped:
        load = answers.pop(module.file, None)
        missed = absent & set(module.depends)
        if load is None or load.errno is None:
            unanswered.append(_describe_refusal(module.file, load))
        elif _is_unequipped(module.name, load):
            absent.add(module.name)
            accepted.append(f"{module.file}: {_describe_errno(load.errno)}, {UNEQUIPPED[module.name][1]}")
        elif missed and load.errno == errno.ENOENT:
            absent.add(module.name)
            accepted.append(f"{module.file} could not be tested without {', '.join(sorted(missed))}")
        elif load.errno != 0:
            refused.append(_describe_refusal(module.file, load))
        else:
            accepted.append(f"{module.file} loaded")
    taken = {0, errno.EEXIST}  # EEXIST: built into this kernel, or loaded as a dependency
    for answer in answers.values():
        if answer.errno not in taken:
            (unanswered if answer.errno is None else refused).append(_describe_refusal(answer.file, answer))
    return accepted, refused, unanswered


def _is_unequipped(name: str, load: ModuleLoad) -> bool:
    code, words = UNEQUIPPED.get(name, (0, ""))
    return code != 0 and load.errno == code and any(words in line for line in load.printed)


def _describe_refusal(file: str, load: ModuleLoad | None) -> str:
    if load is None:
        return f"{file} was not reached"
    if load.errno is None:
        return f"{file}: the kernel did not respond"
    last_line = f": {load.printed[-1]}" if load.printed else ""
    return f"{file}: {_describe_errno(load.errno)}{last_line}"


def _failed_verdict(boot: Boot, wrong: Sequence[str]) -> Verdict:
    lines = [line for line in boot.console.splitlines() if line.strip()][-_LINES_SHOWN:]
    end = "" if boot.finished else _describe_end(boot)
    reason = "; ".join(part for part in (end, *wrong) if part)
    last = "" if boot.finished else "\n".join(["", *(lines or ["the console is empty"])])
    return Verdict(check=CheckName.BOOT, passed=False, reason=f"{boot.release}: {reason}{last}")


def _describe_end(boot: Boot) -> str:
    if boot.overdue:
        return f"the machine did not end within {boot.seconds:.0f} s ({boot.accelerator})"
    return _panic_line(boot) or "the machine ended before all modules were loaded"


def _panic_line(boot: Boot) -> str:
    panic = next((line for line in boot.console.splitlines() if "Kernel panic" in line), "")
    return _TIME.sub("", panic.strip())


def _describe_errno(code: int | None) -> str:
    if code is None:
        return "no response"
    return f"{errno.errorcode.get(code, str(code))} ({os.strerror(code)})"
