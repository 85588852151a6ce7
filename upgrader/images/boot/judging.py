"""What a boot check's console says, and whether that passes. Pure."""

import errno
import os
import re
from collections.abc import Mapping, Sequence

from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.images.boot.values import Boot, Load
from upgrader.images.modules.values import Module

UNEQUIPPED: Mapping[str, tuple[int, str]] = {
    "nvidia": (errno.ENODEV, "No NVIDIA GPU found"),
    # its own words go on: it serves only where another vendor's network driver was there when it was compiled
    "nvidia_peermem": (errno.EINVAL, "module compiled without IB peer memory symbols"),
}
"""How a module answers that is in order and finds nothing to work with: its errno, and words that it prints."""

_TIME = re.compile(r"^\[ *\d+\.\d+\] ")
_LINE = re.compile(r"boot-check: (loading|loaded|end)(?: (\S+))?(?: errno=(\d+))?")
_LINES_SHOWN = 12


def loads_on(console: str) -> tuple[tuple[Load, ...], bool]:
    """The loads that a console tells of, and whether the list was gone through to its end."""
    loads: list[Load] = []
    waiting: str | None = None
    said: list[str] = []
    finished = False
    for printed in console.splitlines():
        line = _TIME.sub("", printed.strip())
        found = _LINE.fullmatch(line)
        if found is None:
            said.append(line)
        elif found[1] == "loading":
            waiting, said = str(found[2]), []
        elif found[1] == "loaded" and waiting is not None and found[2] == waiting:
            loads.append(Load(file=waiting, errno=int(found[3] or 0), said=tuple(said)))
            waiting = None
        else:
            finished = finished or found[1] == "end"
    if waiting is not None:
        loads.append(Load(file=waiting, errno=None, said=tuple(said)))
    return tuple(loads), finished


def judge(boot: Boot, shipped: Sequence[Module], companions: Sequence[str] = ()) -> Verdict:
    """Whether the kernel took every shipped module.

    A module that answers as one that finds nothing to work with passes; one that imports from it and is refused for
    that (ENOENT: unknown symbol) cannot be tried, as it has not stayed. Any other refusal counts: the kernel looks at
    format and signature first. All else that was loaded, in-tree modules and `companions` (file names), must have been
    taken.
    """
    told, refused, unanswered = _answers(boot, shipped)
    unanswered += [f"{file} was not loaded" for file in companions if file not in {one.file for one in boot.loads}]
    if refused or unanswered or not boot.finished:
        return _failed(boot, [*refused, *unanswered])
    reason = f"{'; '.join(told)} ({boot.release}, {boot.accelerator}, {boot.seconds:.1f} s)"
    return Verdict(check=CheckName.BOOT, passed=True, reason=reason)


def undecided(boot: Boot, shipped: Sequence[Module]) -> bool:
    """Whether a boot says nothing against the modules: it was cut short, not by the kernel, which had refused none.

    That is a machine that was overdue, or one that ended early without a panic. Another try may end otherwise.
    """
    _, refused, _ = _answers(boot, shipped)
    return not boot.finished and not refused and not _panic(boot)


def _answers(boot: Boot, shipped: Sequence[Module]) -> tuple[list[str], list[str], list[str]]:
    """What is told of modules that are in order, of those that the kernel refused, and of those without an answer."""
    answers = {load.file: load for load in boot.loads}
    absent: set[str] = set()
    told: list[str] = []
    refused: list[str] = []
    unanswered: list[str] = []
    for module in shipped:
        load = answers.pop(module.file, None)
        missed = absent & set(module.depends)
        if load is None or load.errno is None:
            unanswered.append(_refusal(module.file, load))
        elif _unequipped(module.name, load):
            absent.add(module.name)
            told.append(f"{module.file}: {_named(load.errno)}, {UNEQUIPPED[module.name][1]}")
        elif missed and load.errno == errno.ENOENT:
            absent.add(module.name)
            told.append(f"{module.file} could not be tried without {', '.join(sorted(missed))}")
        elif load.errno != 0:
            refused.append(_refusal(module.file, load))
        else:
            told.append(f"{module.file} loaded")
    taken = {0, errno.EEXIST}  # exists: built into this kernel, or loaded by another one
    for one in answers.values():
        if one.errno not in taken:
            (unanswered if one.errno is None else refused).append(_refusal(one.file, one))
    return told, refused, unanswered


def _unequipped(name: str, load: Load) -> bool:
    code, words = UNEQUIPPED.get(name, (0, ""))
    return code != 0 and load.errno == code and any(words in line for line in load.said)


def _refusal(file: str, load: Load | None) -> str:
    if load is None:
        return f"{file} was not reached"
    if load.errno is None:
        return f"{file}: the kernel did not answer"
    said = f": {load.said[-1]}" if load.said else ""
    return f"{file}: {_named(load.errno)}{said}"


def _failed(boot: Boot, wrong: Sequence[str]) -> Verdict:
    lines = [line for line in boot.console.splitlines() if line.strip()][-_LINES_SHOWN:]
    end = "" if boot.finished else _ending(boot)
    reason = "; ".join(part for part in (end, *wrong) if part)
    last = "" if boot.finished else "\n".join(["", *(lines or ["the console stayed empty"])])
    return Verdict(check=CheckName.BOOT, passed=False, reason=f"{boot.release}: {reason}{last}")


def _ending(boot: Boot) -> str:
    if boot.overdue:
        return f"it did not end within {boot.seconds:.0f} s ({boot.accelerator})"
    return _panic(boot) or "the machine ended before its list did"


def _panic(boot: Boot) -> str:
    panic = next((line for line in boot.console.splitlines() if "Kernel panic" in line), "")
    return _TIME.sub("", panic.strip())


def _named(code: int | None) -> str:
    if code is None:
        return "no answer"
    return f"{errno.errorcode.get(code, str(code))} ({os.strerror(code)})"
