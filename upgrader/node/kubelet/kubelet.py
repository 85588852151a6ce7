"""The kubelet of a node, as a port of the upgrade."""

import re
import signal
from pathlib import Path
from typing import Protocol

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.processes import KubeletProcesses, RunningKubelet
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet import readiness
from upgrader.node.kubelet.readiness import NodeReadiness

VERSION_SECONDS = 30.0
_VERSION = re.compile(r"^Kubernetes v?(\S+)$")


class Kubelet(Protocol):
    """The kubelet of a node."""

    def running(self) -> tuple[RunningKubelet, ...]:
        """The running kubelets; more than one for a moment during a restart."""
        ...

    def signal(self, kubelet: RunningKubelet, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended. The supervisor of the node restarts the kubelet."""
        ...

    def healthz_fault(self, kubelet: RunningKubelet) -> str:
        """The fault that /healthz of a kubelet reports; empty if it is healthy."""
        ...

    def read_node(self, kubelet: RunningKubelet) -> NodeReadiness:
        """The Node from the API server; raises OSError if the request fails."""
        ...

    def read_version(self, binary: Path) -> str:
        """The version that a binary reports, for example 1.35.4."""
        ...


class HostKubelet:
    """The kubelet on the host."""

    def __init__(self, host: Host, *, binary: str, node: str, programs: ProgramRunner) -> None:
        self._host = host
        self._node = node
        self._programs = programs
        self._processes = KubeletProcesses(host, binary)

    def running(self) -> tuple[RunningKubelet, ...]:
        return self._processes.running()

    def signal(self, kubelet: RunningKubelet, number: signal.Signals) -> None:
        self._processes.signal(kubelet, number)

    def healthz_fault(self, kubelet: RunningKubelet) -> str:
        return readiness.healthz_fault(self._host, kubelet)

    def read_node(self, kubelet: RunningKubelet) -> NodeReadiness:
        return readiness.read_own_node(self._host, kubelet, self._node)

    def read_version(self, binary: Path) -> str:
        """
        Raises:
            OrderFailedError: the binary cannot be run on this node, or reports no version.
        """
        where = self._host.on_node(binary)
        try:
            ended = self._programs.run([str(binary), "--version"], seconds=VERSION_SECONDS)
        except ProcessError as error:
            raise OrderFailedError(
                Reason.CHECKSUM_MISMATCH, f"{where} is not a kubelet that runs on this node: {error}"
            ) from error
        output = ended.output.strip()
        match = _VERSION.match(output)
        if ended.code != 0 or match is None:
            raise OrderFailedError(
                Reason.CHECKSUM_MISMATCH,
                f"{where} is not a kubelet that runs on this node: `--version` ended with exit code {ended.code} and "
                f"output {output[:200]!r}",
            )
        return match[1]
