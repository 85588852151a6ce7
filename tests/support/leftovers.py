"""What a cluster may leave behind: processes, mounts, namespaces, links, routes, cgroups, sysctls, files.

Another cluster may come and go on the machine meanwhile, so links, routes and cgroups of others are left out, and
processes are known by an environment variable that everything started from here inherits.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import tenacity
from msgspec import Struct

from upgrader.process import run
from upgrader.process.daemon import is_alive

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
PLACES = ("/opt", "/etc", "/usr/libexec", "/var/lib", "/var/log", "/usr/lib/cni")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")


class Machine(Struct, frozen=True, kw_only=True):
    """What could be left."""

    mounts: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    cgroups: frozenset[str]
    sysctls: tuple[str, ...]
    files: frozenset[str]


class Running(Struct, frozen=True, kw_only=True):
    """Processes of a cluster, and the namespaces that only they are in."""

    pids: frozenset[int]
    namespaces: frozenset[str]
    ticks: int
    """When it was looked, in the units of /proc/PID/stat: later processes may get the same namespace numbers again."""


def machine() -> Machine:
    return Machine(
        mounts=frozenset(line.split(" - ")[0].split(maxsplit=3)[3] for line in _lines(PROC / "self" / "mountinfo")),
        links=_of_nobody_else(entry.name for entry in Path("/sys/class/net").iterdir()),
        routes=_of_nobody_else(run(["ip", "route", "show", "table", "all"], timeout=10).text.splitlines()),
        cgroups=_of_nobody_else(folder for folder, _, _ in os.walk(CGROUPS)),
        sysctls=tuple((PROC / "sys" / name).read_text() for name in SYSCTLS),
        files=frozenset(str(path) for place in PLACES if Path(place).exists() for path in Path(place).iterdir()),
    )


def marked(mark: str) -> set[int]:
    """Pids of what was started from here, and of all that it started."""
    found = {pid for pid in _pids() if pid != os.getpid() and mark.encode() in _environ(pid)}
    parents = {pid: _parent(pid) for pid in _pids()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def running(mark: str) -> Running:
    pids = marked(mark)
    own_namespaces = {_namespace(os.getpid(), kind) for kind in NAMESPACES}
    other_namespaces = {_namespace(pid, kind) for pid in pids for kind in NAMESPACES}
    ticks = max((_started(pid) for pid in pids), default=0)
    return Running(pids=frozenset(pids), namespaces=frozenset(other_namespaces - own_namespaces - {""}), ticks=ticks)


def left(before: Machine, seen: Running, mark: str) -> dict[str, object]:
    """What is more than before, by kind; nothing when all is well."""
    after = machine()
    older = [pid for pid in _pids() if 0 < _started(pid) <= seen.ticks]
    found: dict[str, object] = {
        "mounts": after.mounts - before.mounts,
        "links": after.links - before.links,
        "routes": after.routes - before.routes,
        "cgroups": after.cgroups - before.cgroups,
        "sysctls": set(after.sysctls) - set(before.sysctls),
        "files": after.files - before.files,
        "marked processes": marked(mark),
        "processes": {pid for pid in seen.pids if is_alive(pid)},
        "namespaces": seen.namespaces & {_namespace(pid, kind) for pid in older for kind in NAMESPACES},
    }
    return {kind: what for kind, what in found.items() if what}


def _lines(path):
    return path.read_text().splitlines()


def _of_nobody_else(entries):
    """Without what other clusters have, which come and go."""
    there = {match[0] for folder in _clusters() if (match := re.search(r"upg\d+", folder))}
    return frozenset(entry for entry in entries if not any(re.search(rf"{link}\b", entry) for link in there))


def _clusters():
    """Bridges of clusters that were not started from here."""
    mark = os.environ["UPGRADER_TEST_MARK"].encode()
    for pid in _pids():
        if mark in _environ(pid):
            continue
        yield from re.findall(r"upg\d+-cp", (_read(PROC / str(pid) / "cgroup")).decode())


def _pids():
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]


def _environ(pid):
    return _read(PROC / str(pid) / "environ")


def _parent(pid):
    return _stat(pid, 1)


def _started(pid):
    return _stat(pid, 19)


def _stat(pid, field):
    """A number of /proc/PID/stat, counted from the state; 0 when the process is gone."""
    stat = _read(PROC / str(pid) / "stat").decode(errors="replace")
    return int(stat.rpartition(")")[2].split()[field]) if stat else 0


def _read(path):
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _namespace(pid, kind):
    try:
        return str((PROC / str(pid) / "ns" / kind).readlink())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def until(condition: Callable[[], object], explain: Callable[[], object] = lambda: "", seconds: float = 30) -> None:
    """Wait for a condition; the test fails with the explanation when it does not come."""
    retry = tenacity.retry_if_result(lambda held: not held)
    stop = tenacity.stop_after_delay(seconds)
    try:
        tenacity.Retrying(retry=retry, wait=tenacity.wait_fixed(0.1), stop=stop)(condition)
    except tenacity.RetryError as error:
        raise AssertionError(f"not within {seconds} s: {explain()}") from error
