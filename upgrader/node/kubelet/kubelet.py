"""The kubelet of a node, as the upgrade deals with it: seen, ended, asked how it is."""

import re
import signal
from pathlib import Path
from typing import Protocol

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.processes import Kubelets, Running
from upgrader.node.host.programs import Programs
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet import readiness
from upgrader.node.kubelet.readiness import NodeView

VERSION_SECONDS = 30.0
_VERSION = re.compile(r"^Kubernetes v?(\S+)$")


class Kubelet(Protocol):
    """What can be asked of the kubelet and done to it."""

    def running(self) -> tuple[Running, ...]:
        """Kubelets that run now; more than one for the moment in which one follows another."""
        ...

    def signal(self, kubelet: Running, number: signal.Signals) -> None:
        """Send a signal; gone already is fine. The node's supervisor starts it again."""
        ...

    def healthz(self, kubelet: Running) -> str:
        """What is wrong with it by its own word; empty when nothing is."""
        ...

    def node(self, kubelet: Running) -> NodeView:
        """The Node as the API server shows it; OSError when there is no answer."""
        ...

    def version(self, binary: Path) -> str:
        """What a binary says it is, as 1.35.4."""
        ...


class HostKubelet:
    """The real one."""

    def __init__(self, host: Host, *, binary: str, node: str, programs: Programs) -> None:
        self._host = host
        self._node = node
        self._programs = programs
        self._processes = Kubelets(host, binary)

    def running(self) -> tuple[Running, ...]:
        return self._processes.running()

    def signal(self, kubelet: Running, number: signal.Signals) -> None:
        self._processes.signal(kubelet, number)

    def healthz(self, kubelet: Running) -> str:
        return readiness.healthz(self._host, kubelet)

    def node(self, kubelet: Running) -> NodeView:
        return readiness.own_node(self._host, kubelet, self._node)

    def version(self, binary: Path) -> str:
        """
        Raises:
            OrderFailedError: it cannot be run here, or does not say a version.
        """
        where = self._host.on_node(binary)
        try:
            ended = self._programs.run([str(binary), "--version"], seconds=VERSION_SECONDS)
        except ProcessError as error:
            raise OrderFailedError(
                Reason.CHECKSUM_MISMATCH, f"{where} is no kubelet that runs here: {error}"
            ) from error
        said = ended.output.strip()
        found = _VERSION.match(said)
        if ended.code != 0 or found is None:
            raise OrderFailedError(
                Reason.CHECKSUM_MISMATCH,
                f"{where} is no kubelet that runs here: `--version` ended with {ended.code} and said {said[:200]!r}",
            )
        return found[1]
