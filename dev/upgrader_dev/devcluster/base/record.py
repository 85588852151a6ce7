"""The record of a cluster in its directory: written before anything is started, and read to delete the cluster."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.errors import DevClusterError
from upgrader.process.places import hold_lock, write_atomically
from upgrader_dev.devcluster.base.addresses import Addresses
from upgrader_dev.devcluster.base.spec import Init, KwokSpec, NodeTaint

FILE = "cluster.json"


class BoxRecord(Struct, frozen=True, kw_only=True):
    """A box node: `index` determines its addresses."""

    name: str
    index: int
    kubelet: str
    labels: Mapping[str, str] = {}
    kernel: str = ""
    """The kernel name of the next power-on; empty: the machine's kernel."""
    taints: tuple[NodeTaint, ...] = ()


class VmRecord(Struct, frozen=True, kw_only=True):
    """A virtual node: `index` determines its addresses, `image` is the folder of the base image of its disk.

    `container_images` is the folder of the disk with container images; empty if it has none initially.
    """

    name: str
    index: int
    kubelet: str
    image: str
    container_images: str = ""
    kernels: tuple[str, ...]
    """Installed releases, oldest first."""
    labels: Mapping[str, str] = {}
    memory_mib: int
    init: Init = "busybox"
    kernel: str = ""
    order: str = ""
    """Changes whenever `kernel` is set; empty: never set, and the disk determines the booted kernel."""


class ClusterRecord(Struct, frozen=True, kw_only=True):
    """A cluster. `token` is in the command line of every process that was started for it."""

    name: str
    token: str
    addresses: Addresses
    fast: bool
    audit_reads_of: str = ""
    created: str
    """RFC 3339."""
    boxes: tuple[BoxRecord, ...] = ()
    vms: tuple[VmRecord, ...] = ()
    kwok: tuple[KwokSpec, ...] = ()
    kwok_kernels: Mapping[str, str] = {}
    """Kernel names of kwok nodes from their next power-on, after set_kernel."""

    def find_kwok(self, name: str) -> KwokSpec:
        """The spec of the kwok node of this name; DevClusterError if it does not exist."""
        for spec in self.kwok:
            if name in spec.names():
                return spec
        raise DevClusterError(f"cluster {self.name} has no kwok node {name}")

    def box(self, name: str) -> BoxRecord:
        """The box of this name; DevClusterError if it does not exist."""
        for box in self.boxes:
            if box.name == name:
                return box
        existing = ", ".join(box.name for box in self.boxes) or "none"
        raise DevClusterError(f"cluster {self.name} has no box {name}", details=f"Its boxes: {existing}.")

    def vm(self, name: str) -> VmRecord:
        """The virtual node of this name; DevClusterError if it does not exist."""
        for vm in self.vms:
            if vm.name == name:
                return vm
        existing = ", ".join(vm.name for vm in self.vms) or "none"
        raise DevClusterError(
            f"cluster {self.name} has no virtual node {name}", details=f"Its virtual nodes: {existing}."
        )


def is_cluster(folder: Path) -> bool:
    """Whether `folder` contains a cluster."""
    return (folder / FILE).exists()


def read_record(folder: Path) -> ClusterRecord:
    """The cluster in `folder`.

    Raises:
        DevClusterError: there is none, or its record is malformed.
    """
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=ClusterRecord)
    except FileNotFoundError:
        raise DevClusterError(
            f"there is no cluster in {folder}",
            resolution="`upgrader dev up` starts one, `upgrader dev status` lists them.",
        ) from None
    except msgspec.MsgspecError as error:
        raise DevClusterError(f"{folder / FILE} cannot be read", details=str(error)) from error


def write_record(folder: Path, record: ClusterRecord) -> None:
    """Write the record atomically."""
    write_atomically(folder / FILE, msgspec.json.format(msgspec.json.encode(record)))


@contextmanager
def change_record(folder: Path) -> Iterator[list[ClusterRecord]]:
    """The record as the only element of a list, which is written at the end; other processes wait."""
    with hold_lock(folder / ".lock"):
        holder = [read_record(folder)]
        yield holder
        write_record(folder, holder[0])


def add_box(folder: Path, box: BoxRecord) -> None:
    """Add or replace a box."""
    with change_record(folder) as holder:
        others = tuple(other for other in holder[0].boxes if other.name != box.name)
        holder[0] = msgspec.structs.replace(holder[0], boxes=(*others, box))


def put_vm(folder: Path, vm: VmRecord) -> None:
    """Add or replace a virtual node."""
    with change_record(folder) as holder:
        others = tuple(other for other in holder[0].vms if other.name != vm.name)
        holder[0] = msgspec.structs.replace(holder[0], vms=(*others, vm))


def cluster_folders(root: Path) -> list[Path]:
    """The directories in `root` that contain clusters."""
    if not root.exists():
        return []
    return sorted(folder for folder in root.iterdir() if is_cluster(folder))
