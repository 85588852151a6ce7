"""A running cluster: its addresses, its nodes, and operations on it."""

import signal
import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from upgrader.core.errors import DevClusterError
from upgrader.process.daemon import is_stopped, send_signal
from upgrader.process.places import Progress, last_lines
from upgrader.process.waiting import wait_until_true
from upgrader_dev.devcluster.base import record
from upgrader_dev.devcluster.base.api import ApiServer
from upgrader_dev.devcluster.base.credentials import Credentials
from upgrader_dev.devcluster.base.network import CONTROL_PLANE_LAST
from upgrader_dev.devcluster.base.nodes import DevNode, ReportedNodeState
from upgrader_dev.devcluster.base.record import BoxRecord, VmRecord
from upgrader_dev.devcluster.base.spec import MOST_BOXES, BoxSpec, KwokSpec, VmSpec, check_fleet, check_name
from upgrader_dev.devcluster.box.box_node import BoxNode
from upgrader_dev.devcluster.box.boxes import Box
from upgrader_dev.devcluster.control_plane.control_plane import FOLDER, ControlPlane
from upgrader_dev.devcluster.kwok import kwok_node
from upgrader_dev.devcluster.kwok.kwok_node import KwokNode
from upgrader_dev.devcluster.virtual.image import Image, find_image
from upgrader_dev.devcluster.virtual.node import VirtualNode

API_SERVER = "kube-apiserver"
API_SECONDS = 180.0
_END_SECONDS = 15.0


class DevCluster:
    """A cluster that was started or loaded. Every method reads the current state; nothing is cached."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._record = record.read_record(folder)
        self.addresses = self._record.addresses
        self.pki = Credentials(folder / "pki", self.addresses)
        self.control_plane = ControlPlane(
            folder, self.addresses, self.pki, fast=self._record.fast, audit_reads_of=self._record.audit_reads_of
        )
        self.box = Box(folder / FOLDER, self._record.token, self.addresses, CONTROL_PLANE_LAST)
        self._api: ApiServer | None = None

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._record.name

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the admin, with embedded certificates, so that it can be copied."""
        return self.pki.path("admin.kubeconfig")

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self.addresses.server

    @property
    def registry(self) -> str:
        """Host and port of the OCI registry (plain http), the same for the host and for the nodes."""
        return self.addresses.registry

    @property
    def audit_log(self) -> Path:
        """The audit log of the API server: JSON lines of level Metadata, without reads, leases and heartbeats.

        For ClusterSpec.audit_reads_of it contains reads and leases.
        """
        return self.control_plane.audit_log

    @property
    def shared(self) -> Path:
        """The host's directory that boxes and virtual nodes have as /var/lib/shared: simulated network storage."""
        return self.folder / "shared"

    @property
    def api(self) -> ApiServer:
        """A client of the admin."""
        if self._api is None:
            self._api = ApiServer(self.server, self.pki)
        return self._api

    def close(self) -> None:
        """Close the client's connections; the cluster continues to run."""
        if self._api is not None:
            self._api.close()
            self._api = None

    # ---- nodes

    @property
    def nodes(self) -> Mapping[str, DevNode]:
        """All nodes of all sorts, by name."""
        current = record.read_record(self.folder)
        boxes: dict[str, DevNode] = {
            box.name: BoxNode(self.folder, current, box.name, self.api) for box in current.boxes
        }
        vms = {vm.name: VirtualNode(self.folder, current, vm.name, self.api) for vm in current.vms}
        fleet = {name: KwokNode(self.folder, name, self.api) for spec in current.kwok for name in spec.names()}
        return {**boxes, **vms, **fleet}

    def box_node(self, name: str) -> BoxNode:
        """A box by name; DevClusterError if it does not exist."""
        return BoxNode(self.folder, record.read_record(self.folder), name, self.api)

    def box_nodes(self) -> list[BoxNode]:
        """All boxes."""
        return [self.box_node(box.name) for box in record.read_record(self.folder).boxes]

    def virtual_node(self, name: str) -> VirtualNode:
        """A virtual node by name; DevClusterError if it does not exist."""
        return VirtualNode(self.folder, record.read_record(self.folder), name, self.api)

    def virtual_nodes(self) -> list[VirtualNode]:
        """All virtual nodes."""
        return [self.virtual_node(vm.name) for vm in record.read_record(self.folder).vms]

    def add_box(self, spec: BoxSpec, progress: Progress = lambda _line: None) -> BoxNode:
        """Record a box and power it on; see wait_ready."""
        node = self.record_box(spec)
        node.set_reported_kernel()
        node.boot(progress)
        return node

    def record_box(self, spec: BoxSpec) -> BoxNode:
        """Assign an index, and so the addresses, to a box before anything of it is started."""
        self._check_new(spec.name, "a box")
        with record.change_record(self.folder) as held:
            fields = msgspec.structs.asdict(spec)
            box_record = BoxRecord(index=_free_index(held[0], spec.name), **fields)
            held[0] = msgspec.structs.replace(held[0], boxes=(*held[0].boxes, box_record))
        return self.box_node(spec.name)

    def add_vm(
        self, spec: VmSpec, progress: Progress = lambda _line: None, packages: Sequence[str] = ()
    ) -> VirtualNode:
        """Record a virtual node and power it on; see wait_ready. A missing image is built.

        `packages` as in ClusterSpec.vm_packages.
        """
        node = self.record_vm(spec, find_image(progress, packages, init=spec.init))
        node.boot()
        return node

    def record_vm(self, spec: VmSpec, over: Image) -> VirtualNode:
        """Assign an index, and so the addresses, to a virtual node before anything of it is started.

        Raises:
            DevClusterError: the name is invalid or taken, or the image lacks the first kernel or the kubelet.
        """
        self._check_new(spec.name, "a virtual node")
        over.check(kernel=spec.kernel, kubelet=spec.kubelet)
        with record.change_record(self.folder) as held:
            vm_record = VmRecord(
                index=_free_index(held[0], spec.name),
                image=str(over.folder),
                container_images=str(over.preloaded.folder) if over.preloaded else "",
                kernels=over.kernels,
                order=uuid.uuid4().hex if spec.kernel else "",
                **msgspec.structs.asdict(spec),
            )
            held[0] = msgspec.structs.replace(held[0], vms=(*held[0].vms, vm_record))
        return self.virtual_node(spec.name)

    def _check_new(self, name: str, what: str) -> None:
        if not self.addresses.namespaced:
            raise DevClusterError("a cluster without root cannot have boxes or virtual nodes")
        check_name(name, what)

    def add_kwok(self, spec: KwokSpec) -> list[KwokNode]:
        """Create kwok nodes; see wait_ready."""
        check_name(spec.prefix, "kwok nodes")
        with record.change_record(self.folder) as held:
            nodes = tuple(other for other in held[0].kwok if other.prefix != spec.prefix)
            check_fleet((*nodes, spec), fast=held[0].fast)
            held[0] = msgspec.structs.replace(held[0], kwok=(*nodes, spec))
        kwok_node.create_nodes(self.api, spec)
        return [KwokNode(self.folder, name, self.api) for name in spec.names()]

    def wait_ready(self) -> dict[str, ReportedNodeState]:
        """Wait until all nodes are Ready; returns their states."""
        nodes: list[BoxNode | VirtualNode] = [*self.box_nodes(), *self.virtual_nodes()]
        real = {node.name: node.wait_ready() for node in nodes}
        fleet = [name for spec in record.read_record(self.folder).kwok for name in spec.names()]
        return {**real, **kwok_node.wait_all(self.api, fleet)}

    # ---- users and faults

    def credentials(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for a new user; its rights are those that RBAC grants to the user and its groups."""
        self.pki.make_certificate(_file_name(user), user, groups)
        return self.pki.write_kubeconfig(_file_name(user))

    def as_user(self, user: str) -> ApiServer:
        """A client of a user that `credentials` created."""
        return ApiServer(self.server, self.pki, _file_name(user))

    def pause_api_server(self) -> None:
        """Stop the process: connections stay open without responses, so clients time out.

        Raises:
            DevClusterError: the API server does not run, or does not stop.
        """
        self._send_signal(signal.SIGSTOP)
        pid = self.box.find_process(API_SERVER)
        if pid is None or not wait_until_true(lambda: is_stopped(pid), seconds=_END_SECONDS, every=0.01):
            raise DevClusterError(f"{API_SERVER} did not stop within {_END_SECONDS:g} s of SIGSTOP")

    def resume_api_server(self) -> None:
        """Continue the API server."""
        self._send_signal(signal.SIGCONT)

    def stop_api_server(self) -> None:
        """Kill the API server: connections are refused until start_api_server.

        Raises:
            DevClusterError: the API server does not run, or does not end.
        """
        self.control_plane.hold_file(API_SERVER).touch()
        self._send_signal(signal.SIGKILL)
        # A process that is ending still accepts connections and resets them; a reset during a TLS handshake makes
        # CPython 3.11 leak the socket.
        if not wait_until_true(self._refuses_connections, seconds=_END_SECONDS, every=0.01):
            raise DevClusterError(f"{API_SERVER} did not end within {_END_SECONDS:g} s of SIGKILL")

    def start_api_server(self) -> None:
        """Start the API server after stop_api_server, and wait until it responds."""
        self.control_plane.hold_file(API_SERVER).unlink(missing_ok=True)
        self.wait_for_api()

    def restart(self, program: str) -> None:
        """Send SIGTERM to `kube-controller-manager` or `kube-scheduler`; process 1 restarts it."""
        self._send_signal(signal.SIGTERM, program)

    def wait_for_api(self, seconds: float = API_SECONDS) -> None:
        """Wait until the API server is ready and the service account that pods require exists.

        Raises:
            DevClusterError: not ready within `seconds`, or the control plane has ended; with the last log lines.
        """
        if not wait_until_true(self._is_ready, seconds=seconds, every=0.05):
            raise DevClusterError(f"the API server is not ready after {seconds:g} s", details=self._last_log_lines())

    def _refuses_connections(self) -> bool:
        try:
            socket.create_connection((self.addresses.control_plane, self.addresses.api_port), timeout=1).close()
        except ConnectionRefusedError:
            return True
        except OSError:  # the connection was reset, or nothing responds yet
            return False
        return False

    def _is_ready(self) -> bool:
        if self.box.find_holder() is None:
            raise DevClusterError("the control plane has ended", details=self._last_log_lines())
        return self.api.is_ready() and self.api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _last_log_lines(self) -> str:
        folder = self.folder / FOLDER
        logs = (folder / "init.log", folder / "starts.log", self.control_plane.log(API_SERVER))
        return "\n".join(last_lines(log) for log in logs)

    def _send_signal(self, number: signal.Signals, program: str = API_SERVER) -> None:
        pid = self.box.find_process(program)
        if pid is None or not send_signal(pid, number):
            raise DevClusterError(f"{program} does not run", resolution=f"See {self.control_plane.log(program)}")


def _free_index(recorded: record.ClusterRecord, name: str) -> int:
    nodes: list[BoxRecord | VmRecord] = [*recorded.boxes, *recorded.vms]
    if name in {other.name for other in nodes} | {FOLDER, "pki", "shared"}:
        raise DevClusterError(f"a node or folder named {name} already exists")
    taken = {other.index for other in nodes}
    free = [index for index in range(1, MOST_BOXES + 1) if index not in taken]
    if not free:
        raise DevClusterError(f"a cluster has at most {MOST_BOXES} boxes and virtual nodes")
    return free[0]


def _file_name(user: str) -> str:
    return "user-" + "".join(letter if letter.isalnum() else "-" for letter in user)
