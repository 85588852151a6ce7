"""What other sources know of a node, compared with what upgrader found. Everything from a node may be damaged."""

import re
from collections.abc import Iterable, Mapping

from upgrader.core.first_node.report_rows import MissedRow

_GPU_FILE = re.compile(r"(?:nvidia|[a-z]+-gpu)\d+")
_PID = re.compile(r"pid (\d+) ")
_FUSER = re.compile(r"(?m)^(?:/dev/\S+:)?\s+\S+\s+(\d+)\s+\S+\s+(.*)$")


def compare_facts(of_cluster: Mapping[str, str], of_survey: Mapping[str, str]) -> tuple[MissedRow, ...]:
    """Facts that the Node of the API server and the survey state differently."""
    return tuple(
        MissedRow(expected=f"{name} {value}", found=of_survey.get(name, "nothing"), where="Node against survey")
        for name, value in of_cluster.items()
        if value and of_survey.get(name, "") != value
    )


def compare_devices(requested: int, listed: str) -> tuple[MissedRow, ...]:
    """The device files of GPUs in a pod that requests this many, by the listing of its /dev."""
    found = sum(_GPU_FILE.fullmatch(line.strip()) is not None for line in listed.splitlines())
    row = MissedRow(expected=f"{requested} device file(s)", found=str(found), where=f"pod with {requested} GPU(s)")
    return () if found == requested else (row,)


def compare_lines(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[MissedRow, ...]:
    """Lines of outputs that are missing now, and lines that were not there; outputs that only one has are left out."""
    rows = []
    for name in sorted(before.keys() & after.keys()):
        then, now = before[name].splitlines(), after[name].splitlines()
        lines_then, lines_now = set(then), set(now)
        rows += [MissedRow(expected=line, found="nothing", where=name) for line in then if line not in lines_now]
        rows += [MissedRow(expected="nothing", found=line, where=name) for line in now if line not in lines_then]
    return tuple(rows)


def compare_holders(fuser: str, holders: str) -> tuple[MissedRow, ...]:
    """Processes that fuser lists as users of the driver's devices, and the search of upgrader does not."""
    known = set(_PID.findall(holders))
    found = dict(_FUSER.findall(fuser))
    return tuple(
        MissedRow(expected=f"pid {pid} ({command.strip()})", found="nothing", where="fuser against survey")
        for pid, command in found.items()
        if pid not in known
    )


def compare_modules(modules: str, known: Iterable[str], module: str) -> tuple[MissedRow, ...]:
    """Modules that use `module`, directly or not, by /proc/modules, and that upgrader would not remove."""
    users = {
        words[0]: words[3].strip(",").split(",") for line in modules.splitlines() if len(words := line.split()) > 3
    }
    wanted, open_names = set[str](), [module] if module in users else []
    while open_names:
        name = open_names.pop()
        if name in wanted or name in {"-", ""} or name.startswith("["):
            continue
        wanted.add(name)
        open_names += users.get(name, [])
    return tuple(
        MissedRow(expected=f"module {name}", found="nothing", where="/proc/modules against /sys/module")
        for name in sorted(wanted - set(known))
    )
