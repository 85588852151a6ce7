"""A node with a real kubelet, containerd and containers, in a box on the machine's kernel."""

import shutil
import signal
import uuid
from pathlib import Path
from typing import Literal

import msgspec

from upgrader.core.errors import DevClusterError
from upgrader.process import FinishedProgram
from upgrader.process.daemon import send_signal
from upgrader.process.places import Progress, last_lines, write_atomically
from upgrader.process.supervise import SupervisedProgram
from upgrader_dev.devcluster import cgroups
from upgrader_dev.devcluster.base import binaries, network, nodes, plan, record
from upgrader_dev.devcluster.base.api import NODES, ApiServer
from upgrader_dev.devcluster.base.credentials import Credentials
from upgrader_dev.devcluster.base.nodes import READY_SECONDS, ReportedNodeState
from upgrader_dev.devcluster.base.plan import BootStage, NodeMounts, Plan, Ready
from upgrader_dev.devcluster.base.record import BoxRecord
from upgrader_dev.devcluster.box import kernel_names, node_files
from upgrader_dev.devcluster.box.boxes import Box
from upgrader_dev.devcluster.box.node_files import HOME

MODULE = "upgrader_dev.devcluster.box.inside"
SHARED = "shared"
"""The folder of the cluster that all boxes have as /var/lib/shared."""
_ENTER_SECONDS = 60.0


class BoxNode:
    """A box of a cluster; `folder` is the cluster's, `found` its record."""

    sort: Literal["box"] = "box"

    def __init__(self, folder: Path, cluster_record: record.ClusterRecord, name: str, api: ApiServer) -> None:
        self._cluster = folder
        self._record = cluster_record
        self._index = cluster_record.box(name).index
        self._api = api
        self.name = name
        self.folder = folder / name
        self._box = Box(
            self.folder,
            cluster_record.token,
            cluster_record.addresses,
            cluster_record.addresses.last_octet(self._index),
        )

    @property
    def disk(self) -> Path:
        """/var/lib of the node, on the host."""
        return self.folder / "var-lib"

    @property
    def home(self) -> Path:
        """node_files.HOME of the node, on the host."""
        return self.disk / HOME.removeprefix("/var/lib/")

    @property
    def address(self) -> str:
        """Its InternalIP."""
        return self._record.addresses.node_address(self._index)

    @property
    def running(self) -> bool:
        """Whether it is powered on."""
        return self._box.find_holder() is not None

    @property
    def connected(self) -> bool:
        """Whether it is connected to the network."""
        return self._box.is_connected()

    def log(self, name: str) -> Path:
        """The log of `kubelet` or `containerd`, or `starts`: each start and end of both."""
        return self.folder / "var-log" / f"{name}.log"

    # ---- power and network

    def power_on(self) -> None:
        """Boot: kubelet and containerd start automatically; see wait_ready."""
        self.set_reported_kernel()
        self.boot()

    def set_reported_kernel(self) -> None:
        """Set the kernel name that the next boot reports, in the API server."""
        kernel_names.set_kernel_name(self._api, self.name, self._read_record().kernel)

    def boot(self, progress: Progress = lambda _line: None) -> None:
        """Write the node's files to its disk and start its first process; the API server need not run yet."""
        box = self._read_record()
        self._write_disk(box, progress)
        plan.write_plan(self.folder, self._make_plan(box))
        cgroups.delegate_controllers()
        self._box.start(MODULE, self.folder)

    def power_off(self) -> None:
        """Send SIGKILL to all processes; the disk remains."""
        self._box.kill()

    def cut(self) -> None:
        """Unplug the network cable."""
        self._box.set_connected(up=False)

    def join(self) -> None:
        """Plug in the network cable."""
        self._box.set_connected(up=True)

    def set_kernel(self, kernel: str) -> None:
        """Simulated: the name that the node reports from the next power-on; empty for the machine's kernel."""
        record.add_box(self._cluster, msgspec.structs.replace(self._read_record(), kernel=kernel))

    # ---- access to the node

    def enter(self, *words: str | Path, seconds: float = _ENTER_SECONDS, check: bool = True) -> FinishedProgram:
        """Run a program on the node, outside all containers."""
        return self._box.enter(words, seconds, check=check)

    def pause(self, program: str = "") -> None:
        """Suspend `kubelet` or `containerd`, or the whole node with its pods: connections stay open."""
        if program:
            self._send_signal(program, signal.SIGSTOP)
        else:
            self._require_running().freeze()

    def resume(self, program: str = "") -> None:
        """Continue what was suspended."""
        if program:
            self._send_signal(program, signal.SIGCONT)
        else:
            self._require_running().thaw()

    def restart(self, program: str) -> None:
        """Send SIGTERM; process 1 of the box restarts the program."""
        self._send_signal(program, signal.SIGTERM)

    def replace_kubelet(self, program: Path) -> None:
        """Replace the kubelet as a node upgrade does: copy next to it, rename, SIGTERM."""
        _stage_program(program, self.home / "bin" / "kubelet")
        self.restart("kubelet")

    def state(self) -> ReportedNodeState | None:
        """The state in its Node object; None if there is none."""
        value = self._api.get(f"{NODES}/{self.name}")
        return nodes.node_state(value) if value is not None else None

    def wait_ready(self, seconds: float = READY_SECONDS) -> ReportedNodeState:
        """Wait until the Node is Ready with this boot id: after a reboot the object shows the old Ready for seconds."""
        boot_id = (self.home / "boot-id").read_text().strip()
        kernel = plan.read_plan(self.folder).kernel

        def on_this_boot(state: ReportedNodeState) -> bool:
            return state.ready == "True" and state.boot_id == boot_id and kernel in {"", state.kernel}

        ready = nodes.wait_for_node(
            self._api, self.name, on_this_boot, seconds, f"Ready on boot {boot_id}", self._last_log_lines
        )
        self._set_labels()
        return ready

    def wait_not_ready(self, seconds: float = READY_SECONDS) -> ReportedNodeState:
        """Wait until the node controller marks it not ready."""
        return nodes.wait_for_node(
            self._api, self.name, lambda state: state.ready != "True", seconds, "silent", lambda: ""
        )

    # ---- inside

    def _read_record(self) -> BoxRecord:
        return record.read_record(self._cluster).box(self.name)

    def _set_labels(self) -> None:
        """Set the labels that a kubelet cannot set itself."""
        labels = {
            key: value for key, value in self._read_record().labels.items() if not node_files.kubelet_may_set(key)
        }
        if labels:
            self._api.patch(f"{NODES}/{self.name}", {"metadata": {"labels": labels}})

    def _write_disk(self, box: BoxRecord, progress: Progress) -> None:
        home = self.home
        for folder in (home / "bin", self.folder / "var-log", self._cluster / SHARED):
            folder.mkdir(parents=True, exist_ok=True)
        # leases of pods of the previous boot
        shutil.rmtree(self.disk / "cni", ignore_errors=True)
        write_atomically(home / "boot-id", f"{uuid.uuid4()}\n".encode())  # the kernel's own boot id never changes here
        if not (home / "machine-id").exists():
            write_atomically(home / "machine-id", f"{uuid.uuid4().hex}\n".encode())
        if not (
            home / "bin" / "kubelet"
        ).exists():  # later kubelets are installed by a node upgrade, and survive a reboot
            _stage_program(binaries.kubelet_program(box.kubelet, progress), home / "bin" / "kubelet")
        self._write_settings(box)

    def _write_settings(self, box: BoxRecord) -> None:
        addresses = self._record.addresses
        pki = Credentials(self._cluster / "pki", addresses)
        files = node_files.render_node_files(
            pki, addresses, self.name, self._index, fast=self._record.fast, taints=box.taints
        )
        pause = (self._cluster / "pause.tar").read_bytes()
        for name, data in {**files, "pause.tar": pause, "containerd.toml": node_files.containerd_config()}.items():
            write_atomically(self.home / name, data, mode=0o600)

    def _make_plan(self, box: BoxRecord) -> Plan:
        addresses = self._record.addresses
        import_pause = ("ctr", "-n", "k8s.io", "images", "import", f"{HOME}/pause.tar")
        containerd = BootStage(
            programs=(
                SupervisedProgram(
                    name="containerd",
                    words=("containerd", "-c", f"{HOME}/containerd.toml"),
                    log="/var/log/containerd.log",
                ),
            ),
            ready=Ready(kind="socket", address="/run/containerd/containerd.sock"),
            commands=(import_pause,),
        )
        return Plan(
            hostname=self.name,
            holds=f"{HOME}/holds",
            journal="/var/log/starts.log",
            stages=(containerd, BootStage(programs=(self._kubelet_program(box),))),
            network=network.interface_commands(addresses, addresses.last_octet(self._index)),
            mounts=NodeMounts(
                var_lib=str(self.disk),
                var_log=str(self.folder / "var-log"),
                shared=str(self._cluster / SHARED),
                kernel=box.kernel,
            ),
        )

    def _kubelet_program(self, box: BoxRecord) -> SupervisedProgram:
        own = (f"--boot-id-file={HOME}/boot-id", f"--machine-id-file={HOME}/machine-id")
        words = node_files.kubelet_words(self.address, box.labels, *own)
        return SupervisedProgram(name="kubelet", words=(f"{HOME}/bin/kubelet", *words), log="/var/log/kubelet.log")

    def _require_running(self) -> Box:
        if not self.running:
            raise DevClusterError(f"{self.name} is off")
        return self._box

    def _send_signal(self, program: str, number: signal.Signals) -> None:
        pid = self._box.find_process(program)
        if pid is None or not send_signal(pid, number):
            raise DevClusterError(f"{program} does not run on {self.name}", details=self._last_log_lines())

    def _last_log_lines(self) -> str:
        logs = (self.folder / "init.log", self.log("starts"), self.log("containerd"), self.log("kubelet"))
        return "\n".join(last_lines(log) for log in logs)


def _stage_program(program: Path, target: Path) -> None:
    # the running file is busy, and a partly written one must never start
    temporary = target.with_name(".kubelet.new")
    shutil.copyfile(program, temporary)
    temporary.chmod(0o755)
    temporary.replace(target)
