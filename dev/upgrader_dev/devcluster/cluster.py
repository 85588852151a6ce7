"""A running cluster: where it is, its nodes, and what can be done to it."""

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
from upgrader_dev.devcluster.base.nodes import Node, NodeState
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


class Cluster:
    """A cluster that `up` started or `load` found. Every method reads what is so now; nothing is remembered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found = record.read_record(folder)
        self.addresses = self._found.addresses
        self.pki = Credentials(folder / "pki", self.addresses)
        self.control_plane = ControlPlane(
            folder, self.addresses, self.pki, fast=self._found.fast, audit_reads_of=self._found.audit_reads_of
        )
        self.box = Box(folder / FOLDER, self._found.token, self.addresses, CONTROL_PLANE_LAST)
        self._api: ApiServer | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self._found.name

    @property
    def kubeconfig(self) -> Path:
        """Admin's; it has all in it and can be copied anywhere on this machine."""
        return self.pki.path("admin.kubeconfig")

    @property
    def server(self) -> str:
        """The API server's address."""
        return self.addresses.server

    @property
    def registry(self) -> str:
        """Host and port of the OCI registry (plain http), the same for the host and for the nodes."""
        return self.addresses.registry

    @property
    def audit_log(self) -> Path:
        """The API server's audit log: JSON lines of level Metadata; no reads, leases and heartbeats.

        Of ClusterSpec.audit_reads_of there are reads and leases.
        """
        return self.control_plane.audit_log

    @property
    def shared(self) -> Path:
        """On the host: what every box and virtual node has as /var/lib/shared (stands in for network storage)."""
        return self.folder / "shared"

    @property
    def api(self) -> ApiServer:
        """Requests as admin."""
        if self._api is None:
            self._api = ApiServer(self.server, self.pki)
        return self._api

    def close(self) -> None:
        """End our connections; the cluster runs on."""
        if self._api is not None:
            self._api.close()
            self._api = None

    # ---- nodes

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes of all sorts, by name."""
        found = record.read_record(self.folder)
        boxes: dict[str, Node] = {box.name: BoxNode(self.folder, found, box.name, self.api) for box in found.boxes}
        vms = {vm.name: VirtualNode(self.folder, found, vm.name, self.api) for vm in found.vms}
        fleet = {name: KwokNode(self.folder, name, self.api) for spec in found.kwok for name in spec.names()}
        return {**boxes, **vms, **fleet}

    def box_node(self, name: str) -> BoxNode:
        """A box by name; DevClusterError when there is none."""
        return BoxNode(self.folder, record.read_record(self.folder), name, self.api)

    def box_nodes(self) -> list[BoxNode]:
        """All boxes."""
        return [self.box_node(box.name) for box in record.read_record(self.folder).boxes]

    def virtual_node(self, name: str) -> VirtualNode:
        """A virtual node by name; DevClusterError when there is none."""
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
        """Give a box its index, and with it its addresses, before anything of it is started."""
        self._check_new(spec.name, "a box")
        with record.change_record(self.folder) as held:
            fields = msgspec.structs.asdict(spec)
            made = BoxRecord(index=_free_index(held[0], spec.name), **fields)
            held[0] = msgspec.structs.replace(held[0], boxes=(*held[0].boxes, made))
        return self.box_node(spec.name)

    def add_vm(
        self, spec: VmSpec, progress: Progress = lambda _line: None, packages: Sequence[str] = ()
    ) -> VirtualNode:
        """Record a virtual node and power it on; see wait_ready. The image is built where it is not there yet.

        `packages` as ClusterSpec.vm_packages.
        """
        node = self.record_vm(spec, find_image(progress, packages))
        node.boot()
        return node

    def record_vm(self, spec: VmSpec, over: Image) -> VirtualNode:
        """Give a virtual node its index, and with it its addresses, before anything of it is started.

        Raises:
            DevClusterError: the name is none or taken, or the image lacks its first kernel or its kubelet.
        """
        self._check_new(spec.name, "a virtual node")
        over.check(kernel=spec.kernel, kubelet=spec.kubelet)
        with record.change_record(self.folder) as held:
            made = VmRecord(
                index=_free_index(held[0], spec.name),
                image=str(over.folder),
                container_images=str(over.preloaded.folder) if over.preloaded else "",
                kernels=over.kernels,
                order=uuid.uuid4().hex if spec.kernel else "",
                **msgspec.structs.asdict(spec),
            )
            held[0] = msgspec.structs.replace(held[0], vms=(*held[0].vms, made))
        return self.virtual_node(spec.name)

    def _check_new(self, name: str, what: str) -> None:
        if not self.addresses.namespaced:
            raise DevClusterError("a cluster that was started without root has no boxes and no virtual nodes")
        check_name(name, what)

    def add_kwok(self, spec: KwokSpec) -> list[KwokNode]:
        """Make kwok nodes; see wait_ready."""
        check_name(spec.prefix, "kwok nodes")
        with record.change_record(self.folder) as held:
            others = tuple(other for other in held[0].kwok if other.prefix != spec.prefix)
            check_fleet((*others, spec), fast=held[0].fast)
            held[0] = msgspec.structs.replace(held[0], kwok=(*others, spec))
        kwok_node.create_nodes(self.api, spec)
        return [KwokNode(self.folder, name, self.api) for name in spec.names()]

    def wait_ready(self) -> dict[str, NodeState]:
        """Until all nodes are Ready; what each says."""
        nodes: list[BoxNode | VirtualNode] = [*self.box_nodes(), *self.virtual_nodes()]
        real = {node.name: node.wait_ready() for node in nodes}
        fleet = [name for spec in record.read_record(self.folder).kwok for name in spec.names()]
        return {**real, **kwok_node.wait_all(self.api, fleet)}

    # ---- users and trouble

    def credentials(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for a user of its own; it may do what RBAC gives it and its groups."""
        self.pki.make(_file_name(user), user, groups)
        return self.pki.kubeconfig(_file_name(user))

    def as_user(self, user: str) -> ApiServer:
        """Requests as a user that has `credentials`."""
        return ApiServer(self.server, self.pki, _file_name(user))

    def pause_api_server(self) -> None:
        """It keeps its connections and answers nobody: clients run into their time-outs.

        Raises:
            DevClusterError: it does not run, or is not stopped.
        """
        self._signal(signal.SIGSTOP)
        pid = self.box.process(API_SERVER)
        if pid is None or not wait_until_true(lambda: is_stopped(pid), seconds=_END_SECONDS, every=0.01):
            raise DevClusterError(f"{API_SERVER} is not stopped within {_END_SECONDS:g} s of SIGSTOP")

    def resume_api_server(self) -> None:
        """End the pause."""
        self._signal(signal.SIGCONT)

    def stop_api_server(self) -> None:
        """End it: from then on connections are refused, until start_api_server.

        Raises:
            DevClusterError: it does not run, or does not end.
        """
        self.control_plane.hold(API_SERVER).touch()
        self._signal(signal.SIGKILL)
        # A process that is ending still takes connections and resets them; in the middle of wrapping one in TLS, that
        # makes CPython 3.11 lose the socket without closing it.
        if not wait_until_true(self._refuses, seconds=_END_SECONDS, every=0.01):
            raise DevClusterError(f"{API_SERVER} does not end within {_END_SECONDS:g} s of SIGKILL")

    def start_api_server(self) -> None:
        """Start it again after stop_api_server, and wait until it answers."""
        self.control_plane.hold(API_SERVER).unlink(missing_ok=True)
        self.wait_for_api()

    def restart(self, program: str) -> None:
        """SIGTERM to `kube-controller-manager` or `kube-scheduler`; process 1 starts it again."""
        self._signal(signal.SIGTERM, program)

    def wait_for_api(self, seconds: float = API_SECONDS) -> None:
        """Until the API server says that it is ready, and the service account that pods need is there.

        Raises:
            DevClusterError: not within `seconds`, or the control plane has ended; with the last lines of the logs.
        """
        if not wait_until_true(self._answers, seconds=seconds, every=0.05):
            raise DevClusterError(f"the API server is not ready after {seconds:g} s", details=self._said())

    def _refuses(self) -> bool:
        try:
            socket.create_connection((self.addresses.control_plane, self.addresses.api_port), timeout=1).close()
        except ConnectionRefusedError:
            return True
        except OSError:  # it was reset, or nobody says anything yet
            return False
        return False

    def _answers(self) -> bool:
        if self.box.holder() is None:
            raise DevClusterError("the control plane has ended", details=self._said())
        return self.api.ready() and self.api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _said(self) -> str:
        folder = self.folder / FOLDER
        logs = (folder / "init.log", folder / "starts.log", self.control_plane.log(API_SERVER))
        return "\n".join(last_lines(log) for log in logs)

    def _signal(self, number: signal.Signals, program: str = API_SERVER) -> None:
        pid = self.box.process(program)
        if pid is None or not send_signal(pid, number):
            raise DevClusterError(f"{program} does not run", resolution=f"See {self.control_plane.log(program)}")


def _free_index(found: record.Record, name: str) -> int:
    others: list[BoxRecord | VmRecord] = [*found.boxes, *found.vms]
    if name in {other.name for other in others} | {FOLDER, "pki", "shared"}:
        raise DevClusterError(f"there is a node or folder named {name} already")
    taken = {other.index for other in others}
    free = [index for index in range(1, MOST_BOXES + 1) if index not in taken]
    if not free:
        raise DevClusterError(f"a cluster has at most {MOST_BOXES} boxes and virtual nodes")
    return free[0]


def _file_name(user: str) -> str:
    return "user-" + "".join(letter if letter.isalnum() else "-" for letter in user)
