"""Units of the node's systemd, by its systemctl. A unit restarts on request, whatever its Restart= and limits are.

A kubelet that only gets SIGTERM is not started again by a unit without Restart=always. A new kubelet that dies at once
reaches the start limit, after which systemd would not start the previous one either.
"""

from collections.abc import Sequence
from pathlib import Path

from upgrader.core.errors import ProcessError
from upgrader.node.host.control_groups import read_owner
from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.systemd import ENVIRONMENT, node_command, runs_systemd
from upgrader.node.host.text_files import read_optional

SYSTEMCTL_SECONDS = 30.0
"""Timeout of systemctl, which waits for no job; its own limit for an answer of systemd is 25 s."""

STOP_SECONDS = 120.0
"""Timeout of systemctl stop; systemd kills a service after TimeoutStopSec, 90 s by default."""

_ACTIVE = frozenset({"active", "activating", "reloading"})
_STOPPED = frozenset({"inactive", "failed"})
"""States of a unit that systemd does not start again by itself."""


class SystemUnits:
    """Units of the node's systemd."""

    def __init__(self, host: Host, programs: ProgramRunner) -> None:
        self._host = host
        self._programs = programs

    def find_unit(self, pid: int) -> str:
        """The unit of a process; empty if systemd does not supervise it, for example in a session or a user's unit.

        Raises:
            ProcessError: systemctl fails.
        """
        process = self._host.proc / str(pid)
        unit = read_owner(process).unit
        if not unit or not runs_systemd(self._host):
            return ""
        group = self._read_property(unit, "ControlGroup")
        return unit if group and _is_in_group(process, group) else ""

    def find_active(self, units: Sequence[str]) -> tuple[str, ...]:
        """Those of the units that run or are being started; a unit that does not exist does not.

        Raises:
            ProcessError: systemctl fails.
        """
        return tuple(unit for unit in units if self._read_property(unit, "ActiveState") in _ACTIVE)

    def stop(self, units: Sequence[str]) -> None:
        """Stop units, and wait for their end.

        Raises:
            ProcessError: systemctl fails.
        """
        self._run_checked("stop", *units, seconds=STOP_SECONDS)

    def start(self, units: Sequence[str]) -> None:
        """Request the start of units; a unit that does not exist any more fails alone.

        Raises:
            ProcessError: systemctl fails.
        """
        self._run_checked("start", "--no-block", *units)

    def restart(self, unit: str) -> str:
        """Request a restart, also of a unit that has reached its start limit; returns the fault, if there is one."""
        try:
            # it fails for a unit that systemd has unloaded, which has no start limit either
            self._run("reset-failed", unit)
            code, output = self._run("restart", "--no-block", unit)
        except ProcessError as error:
            return f"systemctl restart {unit}: {error}"
        return f"systemctl restart {unit} ended with exit code {code}: {' '.join(output.split())}" if code else ""

    def run_when_present(self, name: str, path: str, script: str) -> None:
        """Run a shell script once as soon as a path exists, by a transient path unit; replaces an earlier one.

        Raises:
            ProcessError: systemd-run fails.
        """
        self._run("stop", f"{name}.path", f"{name}.service")  # fails if there is no earlier one
        self._run("reset-failed", f"{name}.service")
        words = ["systemd-run", f"--unit={name}", f"--path-property=PathExists={path}"]
        # while the service counts as active, the path does not trigger it again
        words += ["--property=Type=oneshot", "--property=RemainAfterExit=yes", "/bin/sh", "-c", script]
        ended = self._programs.run(node_command(self._host, words), seconds=SYSTEMCTL_SECONDS, env=ENVIRONMENT)
        if ended.code:
            raise ProcessError(f"systemd-run of {name} ended with exit code {ended.code}: {ended.one_line}")

    def is_stopped(self, unit: str) -> bool:
        """Whether systemd will not start a unit by itself; False if systemctl fails."""
        try:
            return self._read_property(unit, "ActiveState") in _STOPPED
        except ProcessError:
            return False

    def _read_property(self, unit: str, name: str) -> str:
        output = self._run_checked("show", f"--property={name}", unit)
        values = (line.partition("=") for line in output.splitlines())
        return next((value for key, _, value in values if key == name), "")

    def _run_checked(self, verb: str, *words: str, seconds: float = SYSTEMCTL_SECONDS) -> str:
        code, output = self._run(verb, *words, seconds=seconds)
        if code:
            units = [word for word in words if not word.startswith("--")]
            reason = " ".join(output.split())
            raise ProcessError(f"systemctl {verb} {' '.join(units)} ended with exit code {code}: {reason}")
        return output

    def _run(self, *words: str, seconds: float = SYSTEMCTL_SECONDS) -> tuple[int, str]:
        command = node_command(self._host, ["systemctl", *words])
        ended = self._programs.run(command, seconds=seconds, env=ENVIRONMENT)
        return ended.code, ended.output.strip()


def _is_in_group(process: Path, group: str) -> bool:
    """Whether a process is in a control group of systemd; paths are relative to the control group of this container."""
    paths = [line.split(":", 2)[2] for line in read_optional(process / "cgroup").splitlines() if line.count(":") >= 2]
    return any(f"{path}/".endswith(f"{group}/") or f"{group}/" in f"{path}/" for path in paths)
