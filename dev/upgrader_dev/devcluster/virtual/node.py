"""A virtual node: everything is real, the kernel too. It boots what its own disk says, as any Debian machine does."""

import contextlib
import time
import uuid
from pathlib import Path
from typing import Literal

import msgspec

from upgrader.core.errors import DevClusterError, ProcessError
from upgrader.process import Finished
from upgrader.process.places import last_lines, write_atomically
from upgrader_dev.devcluster.base import nodes, record
from upgrader_dev.devcluster.base.api import NODES, ApiServer
from upgrader_dev.devcluster.base.credentials import Credentials
from upgrader_dev.devcluster.base.nodes import NodeState
from upgrader_dev.devcluster.base.record import VmRecord
from upgrader_dev.devcluster.box import node_files
from upgrader_dev.devcluster.virtual import settings
from upgrader_dev.devcluster.virtual.agent import Agent
from upgrader_dev.devcluster.virtual.json_lines import SilentError
from upgrader_dev.devcluster.virtual.monitor import Monitor
from upgrader_dev.devcluster.virtual.power import Power
from upgrader_dev.devcluster.virtual.rootfs import grub_entry

MODULES = "modules"
"""Folder of the cluster with the modules that stand in for hardware, RELEASE.ko each."""
_ENTER_SECONDS = 60.0
_STOP_SECONDS = 60.0
_LOG_BYTES = 8_000_000
_CONSOLE_LINES = 15
_READY_SECONDS = 300.0
"""Under emulation a boot takes 12 s on an idle machine, and this is for one that is very busy."""


class VirtualNode:
    """A virtual machine of a cluster; `folder` is the cluster's, `found` its record."""

    sort: Literal["virtual"] = "virtual"

    def __init__(self, folder: Path, found: record.Record, name: str, api: ApiServer) -> None:
        self._cluster = folder
        self._record = found
        self._api = api
        self.name = name
        self.folder = folder / name
        self._power = Power(folder, found, found.vm(name))
        self._agent = Agent(self.folder / "agent.sock")

    @property
    def address(self) -> str:
        """Its InternalIP."""
        return self._record.addresses.node(self._record.vm(self.name).index)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that are installed on it, oldest first."""
        return self._record.vm(self.name).kernels

    @property
    def running(self) -> bool:
        """Whether it is powered on; a hung one is."""
        return self._power.process() is not None

    @property
    def connected(self) -> bool:
        """Whether it is on the network."""
        return self._power.connected()

    # ---- power and network

    def power_on(self) -> None:
        """Boot: the kernel of its disk's configuration, or the one of set_kernel since the last power-on."""
        self.boot()

    def boot(self) -> None:
        """As power_on; the API server may not be there yet."""
        vm = self._record_now()
        files = settings.seed_files(self._record, vm, Credentials(self._cluster / "pki", self._record.addresses))
        pause = (self._cluster / "pause.tar").read_bytes()
        modules = {f"modules/{path.name}": path.read_bytes() for path in (self._cluster / MODULES).glob("*.ko")}
        self._power.start({**files, **modules, "machine-id": self._machine_id(), "pause.tar": pause})

    def power_off(self) -> None:
        """At once: what was not synced is lost. The disk stays."""
        self._power.kill()

    def cut(self) -> None:
        """Pull the network cable."""
        self._power.set_connected(up=False)

    def join(self) -> None:
        """Plug the network cable in."""
        self._power.set_connected(up=True)

    def set_kernel(self, kernel: str) -> None:
        """The kernel of the next power-on, which stays the default; empty for the newest.

        Raises:
            DevClusterError: it is not installed.
        """
        wanted = self._installed(kernel or self.kernels[-1])
        record.put_vm(self._cluster, msgspec.structs.replace(self._record_now(), kernel=wanted, order=uuid.uuid4().hex))

    def restart(self, kernel: str = "") -> None:
        """Orderly, from inside, into another installed kernel or the same; back when the old one has gone.

        Raises:
            DevClusterError: the kernel is not installed, or the node does not answer or stop.
        """
        if kernel:
            self.enter("grub-set-default", grub_entry(self._installed(kernel)))
        with Monitor(self._power.monitor, _STOP_SECONDS) as monitor:
            self._agent.tell(["reboot"])
            monitor.wait_for("RESET")

    def pause(self) -> None:
        """Hang the whole machine: no interrupt, no packet, no clock."""
        self._ask("stop")

    def resume(self) -> None:
        """End the hang. Its clock is set right, as that of real hardware would not have stood still."""
        self._ask("cont")
        self._agent.run(["hwclock", "--hctosys", "--utc"], _ENTER_SECONDS)

    # ---- looking into it

    def enter(
        self, *words: str | Path, seconds: float = _ENTER_SECONDS, check: bool = True, stdin: bytes = b""
    ) -> Finished:
        """Run a program on the node, outside all containers."""
        return self._agent.run(words, seconds, check=check, stdin=stdin)

    def log(self, name: str) -> Path:
        """`console`: all boots; `kubelet`, `containerd` or `agent`: brought here now, the last 8 MB."""
        path = self.folder / f"{name}.log"
        if name != "console":
            said = self.enter("tail", "-c", str(_LOG_BYTES), f"/var/log/{name}.log").stdout
            write_atomically(path, said)
        return path

    def state(self) -> NodeState | None:
        """What its Node object says; None when it has none."""
        found = self._api.get(f"{NODES}/{self.name}")
        return nodes.node_state(found) if found is not None else None

    def wait_ready(self, seconds: float = _READY_SECONDS) -> NodeState:
        """Until the Node is Ready with the boot id and the kernel that the machine itself names.

        After a reboot the old Ready, boot id and kernel stay in the Node object for seconds. A machine whose kernel
        panics meanwhile boots anew: it is asked again when the Node object shows a boot that was not seen before.
        """
        deadline = time.monotonic() + seconds
        boot = self._boot(seconds)
        seen = {boot[0]}

        def on_this_boot(state: NodeState) -> bool:
            nonlocal boot
            if state.boot_id not in seen:
                seen.add(state.boot_id)
                boot = self._boot(max(deadline - time.monotonic(), 1.0))
            return (state.ready, state.boot_id, state.kernel) == ("True", *boot)

        what = "Ready on boot {} of {}".format(*boot)
        left = max(deadline - time.monotonic(), 1.0)
        ready = nodes.wait_for_node(self._api, self.name, on_this_boot, left, what, self._last_words)
        labels = {key: value for key, value in self._record_now().labels.items() if not node_files.kubelet_may_set(key)}
        if labels:
            self._api.patch(f"{NODES}/{self.name}", {"metadata": {"labels": labels}})
        return ready

    def wait_not_ready(self, seconds: float = _READY_SECONDS) -> NodeState:
        """Until the node controller has given it up."""
        return nodes.wait_for_node(
            self._api, self.name, lambda state: state.ready != "True", seconds, "silent", lambda: ""
        )

    # ---- the parts

    def _boot(self, seconds: float) -> tuple[str, str]:
        """Boot id and kernel, as soon as the machine answers."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                told = self.enter("cat", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/osrelease").text
            except SilentError as error:
                if not self.running or time.monotonic() > deadline:
                    what = f"is off or does not answer after {seconds:g} s"
                    raise DevClusterError(f"{self.name} {what}", details=self._last_words()) from error
            else:
                boot_id, kernel = told.split()
                return boot_id, kernel

    def _ask(self, command: str) -> None:
        with Monitor(self._power.monitor) as monitor:
            monitor.ask(command)

    def _installed(self, kernel: str) -> str:
        if kernel not in self.kernels:
            there = ", ".join(self.kernels)
            raise DevClusterError(f"{self.name} has no kernel {kernel}", resolution=f"It has {there}.")
        return kernel

    def _record_now(self) -> VmRecord:
        return record.read_record(self._cluster).vm(self.name)

    def _machine_id(self) -> bytes:
        return f"{uuid.uuid5(uuid.NAMESPACE_DNS, self._record.token + self.name).hex}\n".encode()

    def _last_words(self) -> str:
        logs = [last_lines(self.folder / name, _CONSOLE_LINES) for name in ("qemu.log", "console.log")]
        with contextlib.suppress(DevClusterError, ProcessError):  # it need not answer: then its console is all there is
            logs.append(last_lines(self.log("kubelet"), _CONSOLE_LINES))
        return "\n".join(logs)
