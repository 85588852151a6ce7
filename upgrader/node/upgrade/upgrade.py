"""The upgrade: unload the driver, replace and configure the kubelet, reboot. A run that is killed can be repeated.

The state is in files and processes, not in memory: the installed binary (by checksum), the executable of the running
kubelet, the previous binary, and the record of the upgrade. Each step reads these first. A lock on the node excludes a
second upgrade.
"""

from pathlib import Path

import msgspec

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import (
    KubeletSettings,
    KubeletTarget,
    NodeDriver,
    OrderResult,
    Reason,
    UpgradeOrder,
)
from upgrader.node.driver import driver_unload
from upgrader.node.driver.host_units import HostUnits
from upgrader.node.driver.module_parameters import describe_parameters, write_parameters
from upgrader.node.driver.unload_patience import UnloadPatience
from upgrader.node.host.clock import NodeClock, poll_until_no_fault
from upgrader.node.host.host import Host
from upgrader.node.host.node_lock import hold_node_lock
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.system_units import SystemUnits
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet import kubelet_settings
from upgrader.node.kubelet.kubelet import Kubelet
from upgrader.node.kubelet.kubelet_restart import KubeletRestart, healthz_fault
from upgrader.node.kubelet.kubelet_settings import SettingsFiles
from upgrader.node.kubelet.readiness import ready_fault
from upgrader.node.upgrade import reboot
from upgrader.node.upgrade.boot_comparison import compare_boots, keep_fingerprint
from upgrader.node.upgrade.package_lock import hold_package_lock
from upgrader.node.upgrade.upgrade_record import FetchedKubelet, Records, UpgradeRecord, find_fetched_kubelet
from upgrader.node.validation.power_limits import keep_power_limits

NOT_UNLOADED = "driver not unloaded before the reboot"
"""Name of the fact why the driver was still loaded when the node was rebooted."""

STOPPED_UNITS = "stopped units"
"""Name of the fact with the units of the node that are stopped until a driver is loaded."""

_ENDED_BY_REBOOT = frozenset({Reason.BUSY, Reason.DEVICE_FAILED})
"""Failures of an unload that a reboot ends: processes that use the driver, and a removal that fails or hangs."""


class UpgradeRun:
    """One run of an order. `kubelet` is used only if the order contains a kubelet or settings."""

    def __init__(
        self, order: UpgradeOrder, *, host: Host, kubelet: Kubelet, programs: ProgramRunner, clock: NodeClock
    ) -> None:
        self._order = order
        self._host = host
        self._kubelet = kubelet
        self._programs = programs
        self._clock = clock
        self._units = SystemUnits(host, programs)
        self._host_units = HostUnits(host, programs)
        self._records = Records(host, order.upgrade)
        self._facts: dict[str, str] = {}
        self._files: SettingsFiles | None = None
        """The settings of the kubelet to write; None if they do not change."""
        self._policy = ""
        """The CPU manager policy to check; empty if the settings do not contain it."""

    @property
    def _binary(self) -> str:
        target = self._order.kubelet or self._order.settings
        return target.binary if target is not None else ""

    def run(self) -> OrderResult:
        """Execute the order. The result is recorded: another run of the order returns the same result.

        Raises:
            OrderFailedError: a failure that another run may fix (busy, occupied, missing, kubelet lost).
        """
        with hold_node_lock(self._host, self._order.upgrade, self._clock):
            return self._execute()

    def _execute(self) -> OrderResult:
        record = self._records.read()
        if record.result is not None:
            return record.result
        started = self._clock.monotonic()
        self._facts = dict(record.facts)
        with hold_package_lock(self._host, self._clock):
            if record.boot_id:
                result = self._reboot(record.boot_id)
            else:
                result = self._restore_kubelet(record.restoring) if record.restoring else self._apply_order()
        result = OrderResult(
            reason=result.reason,
            message=result.message,
            seconds=round(self._clock.monotonic() - started, 3),
            facts=self._facts | result.facts,
        )
        self._records.write_result(result)
        return result

    def _apply_order(self) -> OrderResult:
        done = []
        for file in self._order.forget:
            self._host.path(file).unlink(missing_ok=True)
        if self._order.unload is not None:
            done.append(self._unload_driver(self._order.unload))
        elif fault := self._host_units.start():  # an earlier upgrade, which was killed, has stopped them
            self._facts[STOPPED_UNITS] = fault
        if self._order.parameters is not None:
            write_parameters(self._order.parameters, self._host)
            if self._order.parameters.values:
                self._facts["module parameters"] = describe_parameters(self._order.parameters.values)
        if self._order.kubelet is not None or self._order.settings is not None:
            fault = self._change_kubelet()
            if fault:
                self._records.write_restoring(fault)
                return self._restore_kubelet(fault)
            done.append(self._change_summary())
        if self._needs_reboot():
            keep_fingerprint(self._order, self._records, self._host)
            self._records.write_rebooting(self._host.boot_id(), self._facts)
            return self._reboot(self._host.boot_id())
        if self._order.reboot is not None and not self._order.reboot.only_after_failed_unload:
            if self._requested_boot():
                reboot.select_kernel(self._order.reboot, host=self._host, programs=self._programs)
            done.append(f"kernel {self._order.reboot.kernel} runs already")
        return OrderResult(reason=Reason.DONE, message="; ".join(done) or "driver, kubelet and kernel stay the same")

    def _needs_reboot(self) -> bool:
        """Whether the order reboots the node; a reboot that was requested on this boot may still happen."""
        target = self._order.reboot
        if target is None or self._requested_boot() == self._host.boot_id():
            return target is not None
        return NOT_UNLOADED in self._facts if target.only_after_failed_unload else self._host.kernel() != target.kernel

    def _requested_boot(self) -> str:
        """The boot on which the upgrade that this one reverts requested a reboot; empty if it did not."""
        return self._undone().boot_id

    def _undone(self) -> UpgradeRecord:
        """The record of the upgrade that this one reverts; an empty one if it reverts none."""
        undoes = self._order.undoes
        return Records(self._host, undoes).read() if undoes else UpgradeRecord(upgrade="")

    def _unload_driver(self, driver: NodeDriver) -> str:
        """Unload the driver; returns a summary. A reboot ends a driver that hangs or is in use, and does not wait."""
        rebooting = self._needs_reboot()
        self._facts |= keep_power_limits(self._order, self._host, self._programs)
        if stopped := self._host_units.stop(self._order.stop_units):
            self._facts[STOPPED_UNITS] = ", ".join(stopped)
        try:
            summary = driver_unload.unload_driver(
                self._host,
                driver,
                self._programs,
                self._clock,
                patience=self._unload_patience(rebooting=rebooting),
                adopted=self._order.adopted,
            )
        except OrderFailedError as error:
            if error.reason in _ENDED_BY_REBOOT and (rebooting or self._may_reboot(error)):
                self._facts[NOT_UNLOADED] = str(error)
                return NOT_UNLOADED
            if error.reason is Reason.BUSY:
                self._records.write_busy()
            if fault := self._host_units.start():
                raise OrderFailedError(error.reason, f"{error}; {fault}", facts=error.facts) from error
            raise
        self._start_units(driver)
        self._facts["driver"] = summary
        return summary

    def _start_units(self, driver: NodeDriver) -> None:
        """Let the stopped units of the node start with the next driver. A fault is reported, and fails no upgrade."""
        if fault := self._host_units.start_with_driver(driver.vendor):
            self._facts[STOPPED_UNITS] = fault

    def _may_reboot(self, failure: OrderFailedError) -> bool:
        """Whether a failed unload is a reason to reboot: processes that hold the driver are reported once before."""
        conditional = self._order.reboot is not None and self._order.reboot.only_after_failed_unload
        return conditional and (failure.reason is not Reason.BUSY or self._records.read().busy)

    def _unload_patience(self, *, rebooting: bool) -> UnloadPatience:
        if rebooting:
            seconds = self._order.reboot_patience
            return UnloadPatience(users=seconds, removal=seconds, origin="that of an unload before a reboot")
        users = self._order.busy_timeout if self._records.read().busy else self._order.first_busy_timeout
        return UnloadPatience(users=users, removal=self._order.unload_timeout)

    def _reboot(self, before: str) -> OrderResult:
        """Reboot, which ends this process, or, on the next boot, return the result."""
        if self._order.reboot is None:
            raise OrderFailedError(Reason.BAD_ORDER, "an earlier run of this upgrade had a reboot in its order")
        if self._host.boot_id() == before:
            reboot.reboot_node(self._order.reboot, host=self._host, programs=self._programs, clock=self._clock)
        if self._order.unload is not None:
            self._start_units(self._order.unload)  # the reboot has ended the transient unit
        result = reboot.boot_result(self._order.reboot, host=self._host, before=before)
        if NOT_UNLOADED in self._facts:
            conditional = self._order.reboot.only_after_failed_unload
            if conditional and self._order.unload is not None and result.reason is Reason.DONE:
                self._unload_after_boot(self._order.unload)
            message = f"{result.message}; {NOT_UNLOADED}: {self._facts[NOT_UNLOADED]}"
            result = msgspec.structs.replace(result, message=message)
        if result.reason is not Reason.DONE:
            return result
        return compare_boots(result, self._order, self._records, self._host, self._clock)

    def _unload_after_boot(self, driver: NodeDriver) -> None:
        """Unload a driver that the node itself loaded at its boot. A failure is final: one reboot did not help."""
        patience = UnloadPatience(users=self._order.busy_timeout, removal=self._order.unload_timeout)
        try:
            driver_unload.unload_driver(
                self._host, driver, self._programs, self._clock, patience=patience, adopted=self._order.adopted
            )
        except OrderFailedError as error:
            raise OrderFailedError(Reason.DEVICE_FAILED, f"{error}, also after a reboot of the node") from error

    def _change_kubelet(self) -> str:
        """Install the kubelet and its settings, and wait until it is healthy; returns its fault, if it has one."""
        installed, target = self._host.path(self._binary), self._order.kubelet
        source = self._find_source(target, installed) if target is not None else None
        if self._order.settings is not None:
            self._configure_kubelet(self._order.settings)
        if target is not None and source is not None:
            self._install_kubelet(target, source, installed)
        sha256 = self._host.digests.hex_digest(installed)
        version = target.version if target is not None else self._kubelet.read_version(installed)
        healthy = self._wait_until_healthy(sha256, self._order.healthz_timeout)
        return healthy or poll_until_no_fault(
            lambda: self._readiness_fault(version, sha256), clock=self._clock, seconds=self._order.ready_timeout
        )

    def _change_summary(self) -> str:
        target, settings = self._order.kubelet, self._order.settings
        name = f"kubelet {target.version}" if target is not None else "the kubelet"
        if settings is None:
            return f"{name} runs and the node is Ready"
        self._facts["kubelet settings"] = kubelet_settings.describe_settings(settings.values)
        return f"{name} runs with {kubelet_settings.describe_settings(settings.values)} and the node is Ready"

    def _install_kubelet(self, target: KubeletTarget, source: FetchedKubelet, installed: Path) -> None:
        """Keep the installed kubelet and replace it."""
        present = self._host.digests.hex_digest(installed)
        self._facts["kubelet"] = target.version
        if present != source.sha256:
            before = self._kubelet.read_version(installed)
            self._facts["kubelet before"] = before
            self._records.keep_kubelet(installed, version=before, sha256=present)
            self._host.digests.copy_executable(source.binary, installed)

    def _configure_kubelet(self, settings: KubeletSettings) -> None:
        """Write the settings; the kubelets that run at that time are ended later, so that a new one reads the settings.

        A revert restores the files that the upgrade kept, byte by byte; it does nothing if the upgrade changed nothing.
        """
        kept = self._records.read_kept_settings()
        if self._order.undoes:
            before = self._records.read_kept_settings(self._order.undoes)
            if before is None:
                return
            current, goal, policy = kubelet_settings.reread_files(self._host, before), before, before.policy
        else:
            current = kept or kubelet_settings.read_files(self._host, self._running_kubelet())
            goal, policy = current.with_values(settings.values), settings.values.get(kubelet_settings.POLICY, "")
        if kept is None:
            if current.settings == goal.settings and not self._has_older_kubelet(goal):
                return
            self._records.keep_settings(current)
        self._files, self._policy = goal, policy
        self._write_settings()

    def _has_older_kubelet(self, files: SettingsFiles) -> bool:
        """Whether a running kubelet may not have read the current settings."""
        return any(
            kubelet_settings.may_predate_settings(self._host, files, kubelet) for kubelet in self._kubelet.running()
        )

    def _write_settings(self) -> None:
        if self._files is None or self._records.read().ending is not None:
            return
        kubelet_settings.write_files(self._host, self._files)
        self._records.write_configured(self._kubelet.running())

    def _running_kubelet(self) -> RunningKubelet:
        fault = poll_until_no_fault(
            lambda: "" if self._kubelet.running() else f"no kubelet runs from {self._binary}",
            clock=self._clock,
            seconds=self._order.healthz_timeout,
        )
        if fault:
            raise OrderFailedError(Reason.MISSING, fault)
        return self._kubelet.running()[0]

    def _find_source(self, target: KubeletTarget, installed: Path) -> FetchedKubelet:
        """The file to install: the fetched kubelet, else the previous one, else the installed one."""
        fetched = find_fetched_kubelet(self._host, target.version)
        if fetched is not None:
            return fetched
        kept = self._records.read_previous()
        if kept is not None and kept.version == target.version:
            return self._records.stage_previous(kept)
        if self._kubelet.read_version(installed) == target.version:
            return FetchedKubelet(binary=installed, sha256=self._host.digests.hex_digest(installed))
        raise OrderFailedError(
            Reason.MISSING,
            f"kubelet {target.version} is not on the node; the prepare pod copies it from the artifact of the stack",
        )

    def _restore_kubelet(self, cause: str) -> OrderResult:
        """Restore the previous kubelet and its settings."""
        if self._order.kubelet is None and self._order.settings is None:
            raise OrderFailedError(Reason.BAD_ORDER, "an earlier run of this upgrade had a kubelet in its order")
        name = (
            f"kubelet {self._order.kubelet.version}" if self._order.kubelet is not None else "settings of the kubelet"
        )
        previous, self._files = self._records.read_previous(), self._records.read_kept_settings()
        replaced = previous if previous is not None and previous.upgrade == self._order.upgrade else None
        if replaced is None and self._files is None:
            raise OrderFailedError(
                Reason.KUBELET_LOST,
                f"{name}: {cause}. It was installed before this upgrade, so nothing is restored",
            )
        if self._files is not None:
            self._policy = self._files.policy
            self._write_settings()
        installed = self._host.path(self._binary)
        if replaced is not None and self._host.digests.hex_digest(installed) != replaced.sha256:
            self._host.digests.copy_executable(self._records.previous_binary, installed)
        back = (
            f"Kubelet {replaced.version} was restored and"
            if replaced is not None
            else "The previous settings were restored; the kubelet"
        )
        fault = self._wait_until_healthy(self._host.digests.hex_digest(installed), self._order.healthz_timeout)
        if fault:
            raise OrderFailedError(Reason.KUBELET_LOST, f"{name}: {cause}. {back} is not healthy either: {fault}")
        if replaced is not None:
            self._facts["kubelet"] = replaced.version
        return OrderResult(reason=Reason.KUBELET_RESTORED, message=f"{name}: {cause}. {back} runs")

    def _wait_until_healthy(self, sha256: str, seconds: float) -> str:
        """Wait until the running kubelet has the executable with this checksum and is healthy; end all others."""
        restart = KubeletRestart(self._kubelet, self._units, self._clock, unit=self._find_unit())
        return restart.wait_until_healthy(
            sha256, seconds, ending=self._records.read().ending or (), prepare_start=self._repair_state
        )

    def _find_unit(self) -> str:
        """The systemd unit of the kubelet, recorded before any kubelet is ended: later none may run."""
        recorded = self._records.read().unit or self._undone().unit
        running = self._kubelet.running()
        if recorded or not running:
            return recorded
        found: list[str] = []

        def find_fault() -> str:  # systemd answers late on a node under load
            try:
                found.append(self._units.find_unit(running[-1].pid))
            except ProcessError as error:
                return f"the unit of the kubelet is not known: {error}"
            return ""

        fault = poll_until_no_fault(find_fault, clock=self._clock, seconds=self._order.healthz_timeout, every=5.0)
        if fault:
            raise OrderFailedError(Reason.MISSING, fault)
        if found[-1]:
            self._records.write_unit(found[-1])
        return found[-1]

    def _repair_state(self) -> None:
        if self._files is not None:
            kubelet_settings.repair_state(self._host, self._files, self._policy)

    def _readiness_fault(self, version: str, sha256: str) -> str:
        """Why the node is not Ready with the new kubelet; empty if it is."""
        running = self._kubelet.running()
        if [kubelet.sha256 for kubelet in running] != [sha256]:
            return "the new kubelet does not keep running (see its log)"
        try:
            view = self._kubelet.read_node(running[0])
        except (OSError, OrderFailedError) as error:
            return f"the Node cannot be read with the credentials of the kubelet: {error}"
        fault = ready_fault(view, version=version, since=running[0].started) or healthz_fault(self._kubelet, running[0])
        if fault or self._files is None:
            return fault
        return kubelet_settings.policy_fault(self._host, self._files, self._policy)
