"""Starting and deleting clusters; a deleted cluster leaves nothing behind."""

import os
import shutil
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core import timing
from upgrader.core.errors import DevClusterError
from upgrader.process.places import Progress, hold_lock, state_root
from upgrader_dev.devcluster import cgroups, check
from upgrader_dev.devcluster.base import network, record
from upgrader_dev.devcluster.base.addresses import PORT_FIELDS, Addresses, pick_ports, pick_subnet
from upgrader_dev.devcluster.base.record import ClusterRecord
from upgrader_dev.devcluster.base.spec import BoxSpec, ClusterSpec, KwokSpec, VmSpec, check_fleet, check_name
from upgrader_dev.devcluster.box import kernel_names, pause, watchers
from upgrader_dev.devcluster.box.box_node import BoxNode
from upgrader_dev.devcluster.box.boxes import Box
from upgrader_dev.devcluster.cluster import DevCluster
from upgrader_dev.devcluster.control_plane.control_plane import FOLDER
from upgrader_dev.devcluster.virtual.image import Image, find_image
from upgrader_dev.devcluster.virtual.node import MODULES, VirtualNode
from upgrader_dev.devcluster.virtual.power import Power
from upgrader_dev.devcluster.virtual.preloaded import find_disk

_BOXES_AT_ONCE = 4


class ClusterStatus(Struct, frozen=True, kw_only=True):
    """The current state of a cluster."""

    name: str
    folder: str
    running: bool
    server: str
    registry: str
    kubeconfig: str
    created: str
    boxes: dict[str, str]
    """on, off or cut, by name."""
    vms: dict[str, str]
    """As in `boxes`."""
    kwok: int


def folder_of(name: str, root: Path | None = None) -> Path:
    """The folder of a cluster; DevClusterError for an invalid name."""
    check_name(name, "a cluster")
    return (root or state_root()) / name


def start_cluster(spec: ClusterSpec, progress: Progress, root: Path | None = None) -> DevCluster:
    """Start a cluster and wait until all its nodes are Ready. After an error nothing of it remains.

    Raises:
        DevClusterError: a requirement is missing on this machine, or a part does not start.
    """
    boxes, vms, kwok = spec.box_specs(), spec.vm_specs(), spec.kwok_spec()
    check_fleet([kwok], fast=spec.fast)
    namespaces = os.geteuid() == 0 and not spec.loopback
    check.require_host(namespaces=namespaces, boxes=bool(boxes), vms=bool(vms))
    folder = folder_of(spec.name, root)
    if record.is_cluster(folder):
        if DevCluster(folder).box.find_holder() is not None:
            raise DevClusterError(
                f"cluster {spec.name} is already running", resolution=f"`upgrader dev down {spec.name}` ends it."
            )
        progress(f"removing the remains of an earlier cluster {spec.name}")
        delete_cluster(spec.name, root)
    if boxes:
        progress(f"boxes on {cgroups.require_support().reason}")
        if message := watchers.allow_watchers():
            progress(message)
    # before anything is started: building the first image takes a minute
    images = {init: find_image(progress, spec.vm_packages, init=init) for init in sorted({vm.init for vm in vms})}
    if vms and spec.vm_images:
        preloaded = find_disk(spec.vm_images, progress)
        images = {init: msgspec.structs.replace(over, preloaded=preloaded) for init, over in images.items()}
    cluster_record = _claim_addresses(spec, folder, namespaces=namespaces)
    try:
        if namespaces:
            network.make_bridge(cluster_record.addresses, _owner_of(cluster_record))
        _keep_modules(folder, spec.vm_modules)
        return _bring_up(folder, boxes, [(vm, images[vm.init]) for vm in vms], kwok, progress)
    except BaseException:
        delete_cluster(spec.name, root)
        raise


def lacking_for_virtual_nodes() -> str:
    """Why virtual nodes cannot run here (a package, root, a device); empty if they can."""
    return check.lacking_for_virtual_nodes(root=os.geteuid() == 0)


def kernels_of_virtual_nodes(progress: Progress) -> tuple[str, ...]:
    """The kernels of virtual nodes, oldest first; a missing image is built."""
    return find_image(progress).kernels


def load_cluster(name: str, root: Path | None = None) -> DevCluster:
    """A running cluster.

    Raises:
        DevClusterError: the cluster does not exist or does not run.
    """
    cluster = DevCluster(folder_of(name, root))
    if cluster.box.find_holder() is None:
        raise DevClusterError(
            f"cluster {name} does not run", resolution=f"`upgrader dev down {name}` removes its remains."
        )
    return cluster


def delete_cluster(name: str, root: Path | None = None) -> None:
    """End a cluster and remove all of it; nothing happens if it does not exist."""
    folder = folder_of(name, root)
    if not record.is_cluster(folder):
        return
    recorded = record.read_record(folder)
    last_octets = {box.name: recorded.addresses.last_octet(box.index) for box in recorded.boxes}
    last_octets[FOLDER] = network.CONTROL_PLANE_LAST
    boxes = [Box(folder / box, recorded.token, recorded.addresses, last) for box, last in last_octets.items()]
    machines: list[Box | Power] = [*(Power(folder, recorded, vm) for vm in recorded.vms), *boxes]
    for machine in machines:
        machine.send_kill()
    for machine in machines:
        machine.remove_leftovers()
    if recorded.addresses.namespaced:
        network.remove_bridge(recorded.addresses, _owner_of(recorded))
    shutil.rmtree(folder)


def cluster_status(name: str, root: Path | None = None) -> ClusterStatus:
    """The current state of a cluster; DevClusterError if it does not exist."""
    cluster = DevCluster(folder_of(name, root))
    recorded = record.read_record(cluster.folder)
    running = cluster.box.find_holder() is not None
    return ClusterStatus(
        name=name,
        folder=str(cluster.folder),
        running=running,
        server=cluster.server,
        registry=cluster.registry,
        kubeconfig=str(cluster.kubeconfig),
        created=recorded.created,
        boxes={node.name: _power_state(node) for node in cluster.box_nodes()} if running else {},
        vms={node.name: _power_state(node) for node in cluster.virtual_nodes()} if running else {},
        kwok=sum(spec.count for spec in recorded.kwok),
    )


def cluster_names(root: Path | None = None) -> list[str]:
    """The names of all recorded clusters."""
    return [folder.name for folder in record.cluster_folders(root or state_root())]


def _power_state(node: BoxNode | VirtualNode) -> str:
    if not node.running:
        return "off"
    return "on" if node.connected else "cut"


def _owner_of(recorded: ClusterRecord) -> str:
    return f"upgrader:{recorded.token}"


def _claim_addresses(spec: ClusterSpec, folder: Path, *, namespaces: bool) -> ClusterRecord:
    """Choose free addresses and record them, under the lock of all clusters of this user."""
    with hold_lock(state_root() / ".lock"):
        if record.is_cluster(folder):
            raise DevClusterError(f"cluster {spec.name} is being started by another process")
        others = [
            record.read_record(other).addresses
            for other in {*record.cluster_folders(state_root()), *record.cluster_folders(folder.parent)}
        ]
        if namespaces:
            addresses = pick_subnet(other.octet for other in others)
        else:
            addresses = pick_ports(port for other in others for port in _api_ports(other))
        cluster_record = ClusterRecord(
            name=spec.name,
            token=uuid.uuid4().hex,
            addresses=addresses,
            fast=spec.fast,
            audit_reads_of=spec.audit_reads_of,
            created=timing.format_time(datetime.now(UTC).replace(microsecond=0)),
        )
        record.write_record(folder, cluster_record)
    return cluster_record


def _api_ports(addresses: Addresses) -> list[int]:
    fields = msgspec.structs.asdict(addresses)
    return [] if addresses.namespaced else [fields[name] for name in PORT_FIELDS]


def _bring_up(
    folder: Path,
    boxes: tuple[BoxSpec, ...],
    vms: list[tuple[VmSpec, Image]],
    kwok: KwokSpec,
    progress: Progress,
) -> DevCluster:
    cluster = DevCluster(folder)
    cluster.pki.make_authority(cluster.name)
    cluster.control_plane.write_files(progress)
    progress(f"control plane at {cluster.server}, registry at {cluster.registry}")
    cluster.box.start("upgrader_dev.devcluster.box.inside", cluster.folder / FOLDER)
    if boxes or vms:
        pause.make_archive(folder / "pause.tar")
    early = [box for box in boxes if not box.kernel]
    started = time.monotonic()
    with ThreadPoolExecutor(_BOXES_AT_ONCE) as pool:  # their kubelets retry until the API server runs
        booting = [pool.submit(_boot_vm, cluster, vm, over, progress) for vm, over in vms]
        booting += [pool.submit(_boot_box, cluster, box, progress) for box in early]
    for boot in booting:
        boot.result()
    cluster.wait_for_api()
    kernel_names.install_policy(cluster.api)
    for box in boxes:
        if box not in early:
            progress(f"box {box.name}: kubelet {box.kubelet}, simulated kernel {box.kernel}")
            cluster.add_box(box, progress)
    if kwok.count:
        progress(f"{kwok.count} kwok nodes")
        cluster.add_kwok(kwok)
    states = cluster.wait_ready()
    progress(f"{len(states)} nodes Ready {time.monotonic() - started:.1f} s after the first node started")
    progress(f"export KUBECONFIG={cluster.kubeconfig}")
    return cluster


def _keep_modules(folder: Path, modules: Mapping[str, Path]) -> None:
    (folder / MODULES).mkdir()
    for release, module in modules.items():
        shutil.copy(module, folder / MODULES / f"{release}.ko")


def _boot_box(cluster: DevCluster, box: BoxSpec, progress: Progress) -> None:
    cluster.record_box(box).boot(progress)
    progress(f"box {box.name}: kubelet {box.kubelet}")


def _boot_vm(cluster: DevCluster, vm: VmSpec, over: Image, progress: Progress) -> None:
    cluster.record_vm(vm, over).boot()
    progress(f"virtual node {vm.name}: kubelet {vm.kubelet}, kernel {vm.kernel or over.kernels[-1]}")
