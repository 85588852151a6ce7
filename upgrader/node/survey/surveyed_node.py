"""The node under survey: its files, its processes, its kubelet, and what an upgrade will change."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.core.errors import UpgraderError
from upgrader.core.node_protocol.orders import SurveyScope
from upgrader.node.host.host import Host
from upgrader.node.host.pci import PciDevice, read_pci_devices
from upgrader.node.host.processes import KubeletProcesses, RunningKubelet
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.kubelet.node_pods import NodePod, read_node_pods
from upgrader.node.kubelet.readiness import NodeReadiness, read_own_node


class SurveyedNode:
    """What the checks read. Each value is read once, at its first use."""

    def __init__(
        self,
        scope: SurveyScope,
        host: Host,
        programs: ProgramRunner,
        name: str,
        *,
        read_pods: Callable[[Host, RunningKubelet, str], dict[str, NodePod]] = read_node_pods,
    ) -> None:
        self.scope = scope
        self.host = host
        self.programs = programs
        self._name = name
        self._read_pods = read_pods

    @property
    def system(self) -> Path:
        """/sys of the machine."""
        return self.host.root / "sys"

    @property
    def kernel(self) -> str:
        """The kernel for which the driver will be loaded."""
        return self.scope.kernel or self.host.kernel()

    @cached_property
    def pci_devices(self) -> tuple[PciDevice, ...]:
        """The PCI devices."""
        return read_pci_devices(self.system)

    @cached_property
    def kubelet(self) -> RunningKubelet | None:
        """The running kubelet; None if there is none, or its executable is not that of the scope."""
        return next(iter(KubeletProcesses(self.host, self.scope.binary).running()), None)

    @cached_property
    def readiness(self) -> NodeReadiness | None:
        """The Node, read with the credentials of the kubelet; None without kubelet or name of the node.

        Raises:
            OrderFailedError: the kubeconfig cannot be used.
            OSError: the request failed.
        """
        return read_own_node(self.host, self.kubelet, self._name) if self.kubelet and self._name else None

    @cached_property
    def pods(self) -> dict[str, NodePod] | None:
        """The pods of the node by UID; None if they cannot be read."""
        if self.kubelet is None or not self._name:
            return None
        try:
            return self._read_pods(self.host, self.kubelet, self._name)
        except (OSError, UpgraderError):
            return None


def make_problem(check: SurveyCheck, subject: str, message: str, fix: str) -> Advice:
    """A finding that prevents an upgrade."""
    return Advice(subject=subject, check=check.value, severity=Severity.PROBLEM, message=message, fix=fix)


def make_warning(check: SurveyCheck, subject: str, message: str, fix: str) -> Advice:
    """A finding that a user should review."""
    return Advice(subject=subject, check=check.value, severity=Severity.WARNING, message=message, fix=fix)


def make_handled(check: SurveyCheck, subject: str, message: str) -> Advice:
    """A finding that an upgrade handles."""
    return Advice(subject=subject, check=check.value, severity=Severity.OK, message=message)
