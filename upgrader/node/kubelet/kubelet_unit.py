"""The kubelet as a systemd unit: systemd restarts it on request, whatever Restart= and the start limits of it are.

A kubelet that only gets SIGTERM is not started again by a unit without Restart=always. A new kubelet that dies at once
reaches the start limit, after which systemd would not start the previous one either.
"""

from pathlib import Path

from upgrader.core.errors import ProcessError
from upgrader.node.host.control_groups import read_owner
from upgrader.node.host.host import Host
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.systemd import ENVIRONMENT, node_command, runs_systemd
from upgrader.node.host.text_files import read_optional

SYSTEMCTL_SECONDS = 30.0
"""Timeout of systemctl, which waits for no job; its own limit for an answer of systemd is 25 s."""

_STOPPED = frozenset({"inactive", "failed"})
"""States of a unit that systemd does not start again by itself."""


class SystemUnits:
    """Units of the node's systemd."""

    def __init__(self, host: Host, programs: ProgramRunner) -> None:
        self._host = host
        self._programs = programs

    def find_unit(self, kubelet: RunningKubelet) -> str:
        """The unit of a kubelet; empty if systemd does not supervise it, for example in a session or a user's unit.

        Raises:
            ProcessError: systemctl fails.
        """
        process = self._host.proc / str(kubelet.pid)
        unit = read_owner(process).unit
        if not unit or not runs_systemd(self._host):
            return ""
        group = self._read_property(unit, "ControlGroup")
        return unit if group and _is_in_group(process, group) else ""

    def restart(self, unit: str) -> str:
        """Request a restart, also of a unit that has reached its start limit; returns the fault, if there is one."""
        try:
            # it fails for a unit that systemd has unloaded, which has no start limit either
            self._run("reset-failed", unit)
            code, output = self._run("restart", "--no-block", unit)
        except ProcessError as error:
            return f"systemctl restart {unit}: {error}"
        return f"systemctl restart {unit} ended with exit code {code}: {' '.join(output.split())}" if code else ""

    def is_stopped(self, unit: str) -> bool:
        """Whether systemd will not start a unit by itself; False if systemctl fails."""
        try:
            return self._read_property(unit, "ActiveState") in _STOPPED
        except ProcessError:
            return False

    def _read_property(self, unit: str, name: str) -> str:
        code, output = self._run("show", f"--property={name}", unit)
        if code:
            raise ProcessError(f"systemctl show {unit} ended with exit code {code}: {' '.join(output.split())}")
        values = (line.partition("=") for line in output.splitlines())
        return next((value for key, _, value in values if key == name), "")

    def _run(self, *words: str) -> tuple[int, str]:
        command = node_command(self._host, ["systemctl", *words])
        ended = self._programs.run(command, seconds=SYSTEMCTL_SECONDS, env=ENVIRONMENT)
        return ended.code, ended.output.strip()


def _is_in_group(process: Path, group: str) -> bool:
    """Whether a process is in a control group of systemd; paths are relative to the control group of this container."""
    paths = [line.split(":", 2)[2] for line in read_optional(process / "cgroup").splitlines() if line.count(":") >= 2]
    return any(f"{path}/".endswith(f"{group}/") or f"{group}/" in f"{path}/" for path in paths)
