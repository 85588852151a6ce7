"""The upgrade: unload the driver, swap and set the kubelet, reboot. Killed at any line, it comes to the same end.

The truth is in files and processes, never in this run's memory: which binary is installed (by checksum), which one the
running kubelet was started from, which one was kept, and the upgrade's own record. Each step asks these first. A lock
on the node keeps a second upgrade away meanwhile.
"""

import signal
from pathlib import Path

from upgrader.core.node_protocol.orders import Driver, KubeletSettings, KubeletTarget, OrderResult, Reason, UpgradeOrder
from upgrader.node.driver import driver_unload
from upgrader.node.host.clock import Clock, until
from upgrader.node.host.host import Host
from upgrader.node.host.node_lock import holding_node
from upgrader.node.host.processes import Running
from upgrader.node.host.programs import Programs
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet import kubelet_settings
from upgrader.node.kubelet.kubelet import Kubelet
from upgrader.node.kubelet.kubelet_settings import Files
from upgrader.node.kubelet.readiness import ready_fault
from upgrader.node.upgrade import reboot
from upgrader.node.upgrade.upgrade_record import Fetched, Records, fetched

TERM_GRACE = 15.0
"""Seconds after which a kubelet that ignores SIGTERM is killed; containers live on either way."""


class Upgrade:
    """One run of one order. `kubelet` is only used where the order has one, or settings of it."""

    def __init__(self, order: UpgradeOrder, *, host: Host, kubelet: Kubelet, programs: Programs, clock: Clock) -> None:
        self._order = order
        self._host = host
        self._kubelet = kubelet
        self._programs = programs
        self._clock = clock
        self._records = Records(host, order.upgrade)
        self._facts: dict[str, str] = {}
        self._files: Files | None = None
        """The kubelet's settings as they are to be; None where they stay."""
        self._policy = ""
        """By which that kubelet gives CPUs away; empty where it is not ours to say."""

    @property
    def _binary(self) -> str:
        target = self._order.kubelet or self._order.settings
        return target.binary if target is not None else ""

    def run(self) -> OrderResult:
        """The result, which is also on record: the same order run again returns the same.

        Raises:
            OrderFailedError: it failed in a way that another run may mend (busy, occupied, missing, kubelet lost).
        """
        with holding_node(self._host, self._order.upgrade, self._clock):
            return self._run()

    def _run(self) -> OrderResult:
        record = self._records.read()
        if record.result is not None:
            return record.result
        started = self._clock.monotonic()
        self._facts = dict(record.facts)
        if record.boot_id:
            result = self._rebooted(record.boot_id)
        else:
            result = self._restore(record.restoring) if record.restoring else self._forward()
        result = OrderResult(
            reason=result.reason,
            message=result.message,
            seconds=round(self._clock.monotonic() - started, 3),
            facts=self._facts | result.facts,
        )
        self._records.ended(result)
        return result

    def _forward(self) -> OrderResult:
        done = []
        for file in self._order.forget:
            self._host.path(file).unlink(missing_ok=True)
        if self._order.unload is not None:
            done.append(self._unload(self._order.unload))
            self._facts["driver"] = done[-1]
        if self._order.kubelet is not None or self._order.settings is not None:
            wrong = self._change()
            if wrong:
                self._records.restoring(wrong)
                return self._restore(wrong)
            done.append(self._changed())
        if self._order.reboot is not None:
            ordered = Records(self._host, self._order.undoes).read().boot_id if self._order.undoes else ""
            # A reboot that was ordered on this boot may still come, after everything here has been found well.
            if self._host.kernel() != self._order.reboot.kernel or ordered == self._host.boot_id():
                self._records.rebooting(self._host.boot_id(), self._facts)
                return self._rebooted(self._host.boot_id())
            if ordered:
                reboot.choose(self._order.reboot, host=self._host, programs=self._programs)
            done.append(f"kernel {self._order.reboot.kernel} runs already")
        return OrderResult(reason=Reason.DONE, message="; ".join(done) or "nothing was ordered")

    def _unload(self, unwanted: Driver) -> str:
        patience = self._order.busy_timeout if self._records.read().busy else self._order.first_busy_timeout
        try:
            return driver_unload.unload(self._host, unwanted, self._programs, self._clock, patience=patience)
        except OrderFailedError as error:
            if error.reason is Reason.BUSY:
                self._records.busy()
            raise

    def _rebooted(self, before: str) -> OrderResult:
        """What the reboot came to; on the boot that is to end it ends it, and does not return if that goes well."""
        if self._order.reboot is None:
            raise OrderFailedError(Reason.BAD_ORDER, "this upgrade was run before with a reboot in its order")
        if self._host.boot_id() == before:
            reboot.leave(self._order.reboot, host=self._host, programs=self._programs, clock=self._clock)
        return reboot.arrived(self._order.reboot, host=self._host, before=before)

    def _change(self) -> str:
        """Put the wanted kubelet and its settings in place and see it well; what is wrong with it, or empty."""
        installed, target = self._host.path(self._binary), self._order.kubelet
        source = self._source(target, installed) if target is not None else None
        if self._order.settings is not None:
            self._configure(self._order.settings)
        if target is not None and source is not None:
            self._install(target, source, installed)
        wanted = self._host.digests.of(installed)
        version = target.version if target is not None else self._kubelet.version(installed)
        healthy = self._settled(wanted, self._order.healthz_timeout)
        return healthy or until(
            lambda: self._ready(version, wanted), clock=self._clock, seconds=self._order.ready_timeout
        )

    def _changed(self) -> str:
        target, settings = self._order.kubelet, self._order.settings
        name = f"kubelet {target.version}" if target is not None else "the kubelet"
        if settings is None:
            return f"{name} runs and the node is Ready"
        self._facts["kubelet settings"] = kubelet_settings.shown(settings.values)
        return f"{name} runs with {kubelet_settings.shown(settings.values)} and the node is Ready"

    def _install(self, target: KubeletTarget, source: Fetched, installed: Path) -> None:
        """The wanted file in its place, the one before kept."""
        present = self._host.digests.of(installed)
        self._facts["kubelet"] = target.version
        if present != source.sha256:
            before = self._kubelet.version(installed)
            self._facts["kubelet before"] = before
            self._records.keep(installed, version=before, sha256=present)
            self._host.digests.copied(source.binary, installed)

    def _configure(self, wanted: KubeletSettings) -> None:
        """Write the settings; the kubelets that run then are ended later, so that one starts that has read them.

        Going back puts back what the other way kept, byte by byte, and does nothing where that changed nothing.
        """
        kept = self._records.kept_settings()
        if self._order.undoes:
            before = self._records.kept_settings(self._order.undoes)
            if before is None:
                return
            now, goal, policy = kubelet_settings.again(self._host, before), before, before.policy
        else:
            now = kept or kubelet_settings.present(self._host, self._running_kubelet())
            goal, policy = now.of(wanted.values), wanted.values.get(kubelet_settings.POLICY, "")
        if kept is None:
            if now.settings == goal.settings and not self._older_than(goal):
                return
            self._records.keep_settings(now)
        self._files, self._policy = goal, policy
        self._write_settings()

    def _older_than(self, files: Files) -> bool:
        """Whether a kubelet runs that may not have read the settings that are there."""
        return any(kubelet_settings.written_after(self._host, files, one) for one in self._kubelet.running())

    def _write_settings(self) -> None:
        if self._files is None or self._records.read().ending is not None:
            return
        kubelet_settings.put(self._host, self._files)
        self._records.configured(self._kubelet.running())

    def _running_kubelet(self) -> Running:
        wrong = until(
            lambda: (
                "" if self._kubelet.running() else f"no kubelet runs from {self._binary}, whose settings would change"
            ),
            clock=self._clock,
            seconds=self._order.healthz_timeout,
        )
        if wrong:
            raise OrderFailedError(Reason.MISSING, wrong)
        return self._kubelet.running()[0]

    def _source(self, target: KubeletTarget, installed: Path) -> Fetched:
        """The file to install: the fetched one, else the one kept at the last swap, else the one that is there."""
        whole = fetched(self._host, target.version)
        if whole is not None:
            return whole
        kept = self._records.previous()
        if kept is not None and kept.version == target.version:
            return self._records.stage_previous(kept)
        if self._kubelet.version(installed) == target.version:
            return Fetched(binary=installed, sha256=self._host.digests.of(installed))
        raise OrderFailedError(
            Reason.MISSING,
            f"kubelet {target.version} is not on the node; preparing fetches it from the stack's artifact",
        )

    def _restore(self, why: str) -> OrderResult:
        """The old kubelet, and its settings, back in their places."""
        if self._order.kubelet is None and self._order.settings is None:
            raise OrderFailedError(Reason.BAD_ORDER, "this upgrade was run before with a kubelet in its order")
        name = f"kubelet {self._order.kubelet.version}" if self._order.kubelet is not None else "the kubelet's settings"
        kept, self._files = self._records.previous(), self._records.kept_settings()
        mine = kept if kept is not None and kept.upgrade == self._order.upgrade else None
        if mine is None and self._files is None:
            raise OrderFailedError(
                Reason.KUBELET_LOST,
                f"{name}: {why}. It was there before this upgrade, so nothing is put back",
            )
        if self._files is not None:
            self._policy = self._files.policy
            self._write_settings()
        installed = self._host.path(self._binary)
        if mine is not None and self._host.digests.of(installed) != mine.sha256:
            self._host.digests.copied(self._records.previous_binary, installed)
        back = f"Kubelet {mine.version} was put back and" if mine is not None else "Those of before were put back; it"
        wrong = self._settled(self._host.digests.of(installed), self._order.healthz_timeout)
        if wrong:
            raise OrderFailedError(Reason.KUBELET_LOST, f"{name}: {why}. {back} is not well either: {wrong}")
        if mine is not None:
            self._facts["kubelet"] = mine.version
        return OrderResult(reason=Reason.KUBELET_RESTORED, message=f"{name}: {why}. {back} runs")

    def _settled(self, wanted: str, seconds: float) -> str:
        """Wait until the kubelet that runs was started from the wanted file and is healthy; end any other."""
        since: dict[int, float] = {}
        ending = self._records.read().ending or ()

        def look() -> str:
            running = self._kubelet.running()
            others = [one for one in running if one.sha256 != wanted or any(old.is_it(one) for old in ending)]
            for other in others:
                self._end(other, since)
            if others:
                return f"the kubelet with pid {others[0].pid} does not end"
            if not running and self._files is not None:
                kubelet_settings.refit(self._host, self._files, self._policy)
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
        wrong = ready_fault(view, version=version, since=running[0].started) or self._healthz(running[0])
        if wrong or self._files is None:
            return wrong
        return kubelet_settings.fault(self._host, self._files, self._policy)

    def _healthz(self, kubelet: Running) -> str:
        try:
            return self._kubelet.healthz(kubelet)
        except OrderFailedError as error:  # preparing saw that it can be asked; by now that is a fault like others
            return str(error)
