"""What a boot check's console says, and whether that passes. Pure."""

import errno
import os
import re
from collections.abc import Mapping, Sequence

from upgrader.core.driver_builds import CheckName, Verdict
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

    A module that answers as one that finds nothing to work with passes; one that imports from it cannot be tried, as it
    has not stayed. All else that was loaded, in-tree modules and `companions` (file names), must have been taken.
    """
    answers = {load.file: load for load in boot.loads}
    absent: set[str] = set()
    wrong: list[str] = []
    told: list[str] = []
    for module in shipped:
        load = answers.pop(module.file, None)
        if load is not None and _unequipped(module.name, load):
            absent.add(module.name)
            told.append(f"{module.file}: {_named(load.errno)}, {UNEQUIPPED[module.name][1]}")
        elif absent & set(module.depends):
            absent.add(module.name)
            told.append(f"{module.file} could not be tried without {', '.join(sorted(absent & set(module.depends)))}")
        elif load is None or load.errno != 0:
            wrong.append(_refusal(module.file, load))
        else:
            told.append(f"{module.file} loaded")
    taken = {0, errno.EEXIST}  # exists: built into this kernel, or loaded by another one
    wrong += [_refusal(one.file, one) for one in answers.values() if one.errno not in taken]
    wrong += [f"{file} was not loaded" for file in companions if file not in {one.file for one in boot.loads}]
    if wrong or not boot.finished:
        return _failed(boot, wrong)
    reason = f"{'; '.join(told)} ({boot.release}, {boot.accelerator}, {boot.seconds:.1f} s)"
    return Verdict(check=CheckName.BOOT, passed=True, reason=reason)


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
    panic = next((line for line in boot.console.splitlines() if "Kernel panic" in line), "")
    return _TIME.sub("", panic.strip()) or "the machine ended before its list did"


def _named(code: int | None) -> str:
    if code is None:
        return "no answer"
    return f"{errno.errorcode.get(code, str(code))} ({os.strerror(code)})"
