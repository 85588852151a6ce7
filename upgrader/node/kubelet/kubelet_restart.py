"""The restart of the kubelet: those that must not run any more are ended, and the one that must run is waited for.

systemd restarts a kubelet that is one of its units. Any other kubelet gets SIGTERM, and the supervisor of the node
starts the next one.
"""

import signal
from collections.abc import Callable, Sequence

from upgrader.node.host.clock import NodeClock, poll_until_no_fault
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.host.system_units import SystemUnits
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet.kubelet import Kubelet
from upgrader.node.kubelet.kubelet_settings import EndingKubelet

TERM_SECONDS = 15.0
"""Seconds after which a kubelet that ignores SIGTERM is killed; containers continue to run."""

START_AGAIN_SECONDS = 10.0
"""Least time between two restarts of a unit that has stopped; a kubelet that dies at once is started a few times."""


class KubeletRestart:
    """One restart. `unit` is the systemd unit of the kubelet; empty for a kubelet with another supervisor."""

    def __init__(self, kubelet: Kubelet, units: SystemUnits, clock: NodeClock, *, unit: str) -> None:
        self._kubelet = kubelet
        self._units = units
        self._clock = clock
        self._unit = unit
        self._since: dict[int, float] = {}
        """By the PID of a kubelet that must end, when this was requested."""
        self._restarted: float | None = None
        self._fault = ""
        """Why the unit was not restarted."""

    def wait_until_healthy(
        self, sha256: str, seconds: float, *, ending: Sequence[EndingKubelet], prepare_start: Callable[[], None]
    ) -> str:
        """Wait until the running kubelet has the executable with this checksum and is healthy; end all others.

        Args:
            sha256: of the executable.
            seconds: to wait.
            ending: kubelets that must end although they have this executable.
            prepare_start: called before a start while no kubelet runs.

        Returns:
            The fault; empty if it is healthy.
        """

        def find_fault() -> str:
            running = self._kubelet.running()
            others = [
                kubelet for kubelet in running if kubelet.sha256 != sha256 or any(old.is_it(kubelet) for old in ending)
            ]
            for other in others:
                self._end(other)
            if others:
                return f"the kubelet with PID {others[0].pid} does not end{self._describe_fault()}"
            if not running:
                prepare_start()
                self._start_unit()
                return (
                    "no kubelet runs: the supervisor of the node does not start it, or it ends immediately "
                    f"(see its log){self._describe_fault()}"
                )
            return healthz_fault(self._kubelet, running[-1])

        return poll_until_no_fault(find_fault, clock=self._clock, seconds=seconds)

    def _end(self, kubelet: RunningKubelet) -> None:
        now = self._clock.monotonic()
        if kubelet.pid not in self._since:
            self._since[kubelet.pid] = now
            if self._unit and self._restarted is None:
                self._restart_unit()
            else:
                self._kubelet.signal(kubelet, signal.SIGTERM)
        elif now - self._since[kubelet.pid] >= TERM_SECONDS:
            self._kubelet.signal(kubelet, signal.SIGKILL)

    def _start_unit(self) -> None:
        """Start a unit that systemd does not start: at first in any case, since it may be waiting for RestartSec."""
        if self._unit and (self._restarted is None or self._has_stopped(self._restarted)):
            self._restart_unit()

    def _has_stopped(self, restarted: float) -> bool:
        """Whether systemd has given up on the unit since the last restart."""
        waited = self._clock.monotonic() - restarted
        return waited >= START_AGAIN_SECONDS and self._units.is_stopped(self._unit)

    def _restart_unit(self) -> None:
        self._fault = self._units.restart(self._unit)
        self._restarted = self._clock.monotonic()

    def _describe_fault(self) -> str:
        return f"; {self._fault}" if self._fault else ""


def healthz_fault(kubelet: Kubelet, running: RunningKubelet) -> str:
    """The fault that a kubelet reports; empty if it is healthy."""
    try:
        return kubelet.healthz_fault(running)
    except OrderFailedError as error:
        return str(error)  # the prepare pod has checked that /healthz is enabled, so this is a fault like others
