"""A virtual node: everything is real, including the kernel. It boots from its own disk, as any Debian machine does."""

import contextlib
import time
import uuid
from pathlib import Path
from typing import Literal

import msgspec

from upgrader.core.errors import DevClusterError, ProcessError
from upgrader.process import FinishedProgram
from upgrader.process.places import last_lines, write_atomically
from upgrader_dev.devcluster.base import nodes, record
from upgrader_dev.devcluster.base.api import NODES, ApiServer
from upgrader_dev.devcluster.base.credentials import Credentials
from upgrader_dev.devcluster.base.nodes import ReportedNodeState
from upgrader_dev.devcluster.base.record import VmRecord
from upgrader_dev.devcluster.box import node_files
from upgrader_dev.devcluster.virtual import settings
from upgrader_dev.devcluster.virtual.agent import Agent
from upgrader_dev.devcluster.virtual.json_lines import SilentError
from upgrader_dev.devcluster.virtual.monitor import Monitor
from upgrader_dev.devcluster.virtual.power import Power
from upgrader_dev.devcluster.virtual.rootfs import grub_entry

MODULES = "modules"
"""Folder of the cluster with the modules that simulate hardware, RELEASE.ko each."""
_ENTER_SECONDS = 60.0
_STOP_SECONDS = 60.0
_LOG_BYTES = 8_000_000
_CONSOLE_LINES = 15
_READY_SECONDS = 300.0
"""Under emulation a boot takes 12 s on an idle machine; this is for a very busy machine."""


class VirtualNode:
    """A virtual machine of a cluster; `folder` is the cluster's, `found` its record."""

    sort: Literal["virtual"] = "virtual"

    def __init__(self, folder: Path, cluster_record: record.ClusterRecord, name: str, api: ApiServer) -> None:
        self._cluster = folder
        self._record = cluster_record
        self._api = api
        self.name = name
        self.folder = folder / name
        self._power = Power(folder, cluster_record, cluster_record.vm(name))
        self._agent = Agent(self.folder / "agent.sock")

    @property
    def address(self) -> str:
        """Its InternalIP."""
        return self._record.addresses.node_address(self._record.vm(self.name).index)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The installed kernels, oldest first."""
        return self._record.vm(self.name).kernels

    @property
    def running(self) -> bool:
        """Whether it is powered on, which includes a suspended machine."""
        return self._power.find_process() is not None

    @property
    def connected(self) -> bool:
        """Whether it is connected to the network."""
        return self._power.is_connected()

    # ---- power and network

    def power_on(self) -> None:
        """Boot: the kernel of its disk's configuration, or that of set_kernel since the last power-on."""
        self.boot()

    def boot(self) -> None:
        """As power_on; the API server need not run yet."""
        vm = self._read_record()
        files = settings.seed_files(self._record, vm, Credentials(self._cluster / "pki", self._record.addresses))
        pause = (self._cluster / "pause.tar").read_bytes()
        modules = {f"modules/{path.name}": path.read_bytes() for path in (self._cluster / MODULES).glob("*.ko")}
        self._power.start({**files, **modules, "machine-id": self._machine_id(), "pause.tar": pause})

    def power_off(self) -> None:
        """Power off immediately: unsynced data is lost. The disk remains."""
        self._power.kill()

    def cut(self) -> None:
        """Unplug the network cable."""
        self._power.set_connected(up=False)

    def join(self) -> None:
        """Plug in the network cable."""
        self._power.set_connected(up=True)

    def set_kernel(self, kernel: str) -> None:
        """Set the kernel of the next power-on, which stays the default; empty for the newest.

        Raises:
            DevClusterError: it is not installed.
        """
        release = self._require_installed(kernel or self.kernels[-1])
        record.put_vm(
            self._cluster, msgspec.structs.replace(self._read_record(), kernel=release, order=uuid.uuid4().hex)
        )

    def restart(self, kernel: str = "") -> None:
        """Reboot from inside into another installed kernel or the same; returns when the old one has ended.

        Raises:
            DevClusterError: the kernel is not installed, or the node does not respond or stop.
        """
        if kernel:
            self.enter("grub-set-default", grub_entry(self._require_installed(kernel)))
        with Monitor(self._power.monitor, _STOP_SECONDS) as monitor:
            self._agent.start(["reboot"])
            monitor.wait_for("RESET")

    def pause(self) -> None:
        """Suspend the whole machine: no interrupts, packets, or clock."""
        self._run_monitor_command("stop")

    def resume(self) -> None:
        """Continue the machine, and set its clock, which would not have stopped on real hardware."""
        self._run_monitor_command("cont")
        self._agent.run(["hwclock", "--hctosys", "--utc"], _ENTER_SECONDS)

    # ---- access to the node

    def enter(
        self, *words: str | Path, seconds: float = _ENTER_SECONDS, check: bool = True, stdin: bytes = b""
    ) -> FinishedProgram:
        """Run a program on the node, outside all containers."""
        return self._agent.run(words, seconds, check=check, stdin=stdin)

    def log(self, name: str) -> Path:
        """`console`: all boots; `kubelet`, `containerd` or `agent`: the last 8 MB, copied now."""
        path = self.folder / f"{name}.log"
        if name != "console":
            content = self.enter("tail", "-c", str(_LOG_BYTES), f"/var/log/{name}.log").stdout
            write_atomically(path, content)
        return path

    def state(self) -> ReportedNodeState | None:
        """The state in its Node object; None if there is none."""
        value = self._api.get(f"{NODES}/{self.name}")
        return nodes.node_state(value) if value is not None else None

    def wait_ready(self, seconds: float = _READY_SECONDS) -> ReportedNodeState:
        """Wait until the Node is Ready with the boot id and the kernel of the machine.

        After a reboot the Node object shows the old Ready, boot id and kernel for seconds. If the kernel panics,
        the machine boots again: its boot id is read again when the Node object shows a new one.
        """
        deadline = time.monotonic() + seconds
        boot = self._read_boot(seconds)
        seen_boots = {boot[0]}

        def on_this_boot(state: ReportedNodeState) -> bool:
            nonlocal boot
            if state.boot_id not in seen_boots:
                seen_boots.add(state.boot_id)
                boot = self._read_boot(max(deadline - time.monotonic(), 1.0))
            return (state.ready, state.boot_id, state.kernel) == ("True", *boot)

        what = "Ready on boot {} of {}".format(*boot)
        left = max(deadline - time.monotonic(), 1.0)
        ready = nodes.wait_for_node(self._api, self.name, on_this_boot, left, what, self._last_log_lines)
        labels = {
            key: value for key, value in self._read_record().labels.items() if not node_files.kubelet_may_set(key)
        }
        if labels:
            self._api.patch(f"{NODES}/{self.name}", {"metadata": {"labels": labels}})
        return ready

    def wait_not_ready(self, seconds: float = _READY_SECONDS) -> ReportedNodeState:
        """Wait until the node controller marks it not ready."""
        return nodes.wait_for_node(
            self._api, self.name, lambda state: state.ready != "True", seconds, "silent", lambda: ""
        )

    # ---- inside

    def _read_boot(self, seconds: float) -> tuple[str, str]:
        """Boot id and kernel, as soon as the machine responds."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                output = self.enter("cat", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/osrelease").text
            except SilentError as error:
                if not self.running or time.monotonic() > deadline:
                    what = f"is off or does not respond after {seconds:g} s"
                    raise DevClusterError(f"{self.name} {what}", details=self._last_log_lines()) from error
            else:
                boot_id, kernel = output.split()
                return boot_id, kernel

    def _run_monitor_command(self, command: str) -> None:
        with Monitor(self._power.monitor) as monitor:
            monitor.run_command(command)

    def _require_installed(self, kernel: str) -> str:
        if kernel not in self.kernels:
            installed = ", ".join(self.kernels)
            raise DevClusterError(f"{self.name} has no kernel {kernel}", resolution=f"It has {installed}.")
        return kernel

    def _read_record(self) -> VmRecord:
        return record.read_record(self._cluster).vm(self.name)

    def _machine_id(self) -> bytes:
        return f"{uuid.uuid5(uuid.NAMESPACE_DNS, self._record.token + self.name).hex}\n".encode()

    def _last_log_lines(self) -> str:
        logs = [last_lines(self.folder / name, _CONSOLE_LINES) for name in ("qemu.log", "console.log")]
        with contextlib.suppress(DevClusterError, ProcessError):  # a machine that does not respond has only its console
            logs.append(last_lines(self.log("kubelet"), _CONSOLE_LINES))
        return "\n".join(logs)
