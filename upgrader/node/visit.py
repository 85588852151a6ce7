"""The visit: unload the driver, swap the kubelet. Killed at any line and run again it comes to the same end.

The truth is in files and processes, never in this run's memory: which binary is installed (by checksum), which one the
running kubelet was started from, which one was kept, and the visit's own record. Each step asks these first.
"""

import signal
from pathlib import Path

from upgrader.core.orders import KubeletTarget, OrderResult, Reason, VisitOrder
from upgrader.node import driver, durable
from upgrader.node.clock import Clock, until
from upgrader.node.host import Host
from upgrader.node.kubelet import Kubelet
from upgrader.node.outcome import OrderFailedError
from upgrader.node.processes import Running
from upgrader.node.programs import Programs
from upgrader.node.readiness import ready_fault
from upgrader.node.records import Fetched, Records, fetched

TERM_GRACE = 15.0
"""Seconds after which a kubelet that ignores SIGTERM is killed; containers live on either way."""


class Visit:
    """One run of one order. `kubelet` is only used where the order has a kubelet."""

    def __init__(self, order: VisitOrder, *, host: Host, kubelet: Kubelet, programs: Programs, clock: Clock) -> None:
        self._order = order
        self._host = host
        self._kubelet = kubelet
        self._programs = programs
        self._clock = clock
        self._records = Records(host, order.visit)
        self._facts: dict[str, str] = {}

    def run(self) -> OrderResult:
        """The result, which is also on record: the same order run again returns the same.

        Raises:
            OrderFailedError: it failed in a way that another run may mend (busy, missing, kubelet lost).
        """
        record = self._records.read()
        if record.result is not None:
            return record.result
        started = self._clock.monotonic()
        result = self._restore(record.restoring) if record.restoring else self._forward()
        result = OrderResult(
            reason=result.reason,
            message=result.message,
            seconds=round(self._clock.monotonic() - started, 3),
            facts=self._facts,
        )
        self._records.ended(result)
        return result

    def _forward(self) -> OrderResult:
        done = []
        if self._order.unload is not None:
            done.append(driver.unload(self._host, self._order.unload, self._programs))
            self._facts["driver"] = done[-1]
        if self._order.kubelet is not None:
            wrong = self._swap(self._order.kubelet)
            if wrong:
                self._records.restoring(wrong)
                return self._restore(wrong)
            done.append(f"kubelet {self._order.kubelet.version} runs and the node is Ready")
        return OrderResult(reason=Reason.DONE, message="; ".join(done) or "nothing was ordered")

    def _swap(self, target: KubeletTarget) -> str:
        """Put the wanted kubelet in place and see it well; what is wrong with it, or empty."""
        installed = self._host.path(target.binary)
        wanted = self._source(target, installed)
        present = durable.sha256(installed)
        self._facts["kubelet"] = target.version
        if present != wanted.sha256:
            before = self._kubelet.version(installed)
            self._facts["kubelet before"] = before
            self._records.keep(installed, version=before, sha256=present)
            durable.copy(wanted.binary, installed)
        healthy = self._settled(wanted.sha256, self._order.healthz_timeout)
        return healthy or until(
            lambda: self._ready(target.version, wanted.sha256), clock=self._clock, seconds=self._order.ready_timeout
        )

    def _source(self, target: KubeletTarget, installed: Path) -> Fetched:
        """The file to install: the fetched one, else the one kept at the last swap, else the one that is there."""
        whole = fetched(self._host, target.version)
        if whole is not None:
            return whole
        kept = self._records.previous()
        if kept is not None and kept.version == target.version:
            return self._records.stage_previous(kept)
        if self._kubelet.version(installed) == target.version:
            return Fetched(binary=installed, sha256=durable.sha256(installed))
        raise OrderFailedError(
            Reason.MISSING,
            f"kubelet {target.version} is not on the node; preparing fetches it from the stack's artifact",
        )

    def _restore(self, why: str) -> OrderResult:
        """The old kubelet back in its place."""
        if self._order.kubelet is None:
            raise OrderFailedError(Reason.BAD_ORDER, "this visit was run before with a kubelet in its order")
        target = self._order.kubelet
        kept = self._records.previous()
        if kept is None or kept.visit != self._order.visit:
            raise OrderFailedError(
                Reason.KUBELET_LOST,
                f"kubelet {target.version}: {why}. It was there before this visit, so nothing is put back",
            )
        installed = self._host.path(target.binary)
        if durable.sha256(installed) != kept.sha256:
            durable.copy(self._records.previous_binary, installed)
        wrong = self._settled(kept.sha256, self._order.healthz_timeout)
        if wrong:
            raise OrderFailedError(
                Reason.KUBELET_LOST,
                f"kubelet {target.version}: {why}. Kubelet {kept.version} was put back and is not well either: {wrong}",
            )
        self._facts["kubelet"] = kept.version
        return OrderResult(
            reason=Reason.KUBELET_RESTORED,
            message=f"kubelet {target.version}: {why}. Kubelet {kept.version} was put back and runs",
        )

    def _settled(self, wanted: str, seconds: float) -> str:
        """Wait until the kubelet that runs was started from the wanted file and is healthy; end any other."""
        since: dict[int, float] = {}

        def look() -> str:
            running = self._kubelet.running()
            others = [one for one in running if one.sha256 != wanted]
            for other in others:
                self._end(other, since)
            if others:
                return f"the kubelet with pid {others[0].pid} does not end"
            if not running:
                return "no kubelet runs: the node's supervisor does not start it, or it ends at once (see its log)"
            return self._healthz(running[-1])

        return until(look, clock=self._clock, seconds=seconds)

    def _end(self, kubelet: Running, since: dict[int, float]) -> None:
        now = self._clock.monotonic()
        if kubelet.pid not in since:
            since[kubelet.pid] = now
            self._kubelet.signal(kubelet, signal.SIGTERM)
        elif now - since[kubelet.pid] >= TERM_GRACE:
            self._kubelet.signal(kubelet, signal.SIGKILL)

    def _ready(self, version: str, wanted: str) -> str:
        """What keeps the node from being Ready under the new kubelet; empty when nothing does."""
        running = self._kubelet.running()
        if [one.sha256 for one in running] != [wanted]:
            return "the new kubelet does not stay up (see its log)"
        try:
            view = self._kubelet.node(running[0])
        except (OSError, OrderFailedError) as error:
            return f"the API server does not show the node to the kubelet's credentials: {error}"
        return ready_fault(view, version=version, since=running[0].started) or self._healthz(running[0])

    def _healthz(self, kubelet: Running) -> str:
        try:
            return self._kubelet.healthz(kubelet)
        except OrderFailedError as error:  # preparing saw that it can be asked; by now that is a fault like others
            return str(error)
