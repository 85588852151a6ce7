"""The spec of a cluster."""

import re
import string
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from upgrader.core.errors import DevClusterError
from upgrader.images.layout import Layout

MOST_BOXES = 60
"""Boxes and virtual nodes together."""
MOST_VMS = 8
"""Each requires about 1.5 GB."""
MOST_FAST_KWOK = 100
"""In a fast cluster the lease of each kwok node is renewed every 3 s; 500 nodes use two cores, and become NotReady."""
Init = Literal["busybox", "systemd"]
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class NodeTaint(Struct, frozen=True, kw_only=True):
    """A taint of a Node."""

    key: str
    effect: str
    value: str = ""


class BoxSpec(Struct, frozen=True, kw_only=True):
    """A node with a real kubelet and real containers on the machine's kernel."""

    name: str
    kubelet: str = "1.34.4"
    labels: Mapping[str, str] = {}
    kernel: str = ""
    """A simulated kernel name that the node reports; empty: the machine's kernel."""
    taints: tuple[NodeTaint, ...] = ()
    """Taints with which its kubelet registers the Node."""


class VmSpec(Struct, frozen=True, kw_only=True):
    """A node that is a virtual machine: everything is real, including its kernel."""

    name: str
    kubelet: str = "1.34.4"
    labels: Mapping[str, str] = {}
    kernel: str = ""
    """The installed kernel that it boots first; empty: the newest."""
    memory_mib: int = 1536
    init: Init = "busybox"
    """Its first process; systemd boots more slowly."""


class KwokSpec(Struct, frozen=True, kw_only=True):
    """Nodes that are API objects only; kwok keeps them Ready and their pods Running."""

    count: int
    prefix: str = "kwok"
    """Nodes are PREFIX-0, PREFIX-1, …; another call with another prefix adds nodes."""
    gpus: int = 8
    resource: str = "nvidia.com/gpu"
    labels: Mapping[str, str] = {}
    taints: tuple[NodeTaint, ...] = (NodeTaint(key="kwok", effect="NoSchedule"),)
    """The default taint keeps pods away that require real containers."""
    kernel: str = "6.1.0-49-amd64"
    kubelet: str = "1.34.4"

    def names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(f"{self.prefix}-{index}" for index in range(self.count))


class ClusterSpec(Struct, frozen=True, kw_only=True):
    """A cluster. `boxes` is a number (gpu-a, gpu-b, …), names, or BoxSpecs; `vms` likewise (vm-a, vm-b, …)."""

    name: str = "dev"
    boxes: int | tuple[str, ...] | tuple[BoxSpec, ...] = 2
    vms: int | tuple[str, ...] | tuple[VmSpec, ...] = 0
    kwok: int | KwokSpec = 0
    kubelet: str = "1.34.4"
    box_labels: Mapping[str, str] = {}
    vm_labels: Mapping[str, str] = {}
    vm_modules: Mapping[str, Path] = {}
    """Simulated hardware: a module by its kernel release, loaded by every virtual node at boot."""
    vm_packages: tuple[str, ...] = ()
    """Additional Debian packages of virtual nodes: unpacked, without running their scripts."""
    vm_images: tuple[Layout, ...] = ()
    """Container images that are unpacked on virtual nodes' disks before their first boot."""
    fast: bool = True
    """A dead node is NotReady after about 6 s instead of 40 s; must be False above MOST_FAST_KWOK kwok nodes."""
    audit_reads_of: str = ""
    """A group of users, such as a namespace's service accounts, whose reads and leases are also in the audit log."""
    loopback: bool = False
    """No namespaces, free ports on 127.0.0.1, no boxes: a cluster without root."""

    def box_specs(self) -> tuple[BoxSpec, ...]:
        """The specs of the boxes."""
        boxes = self.boxes
        if isinstance(boxes, int):
            if not 0 <= boxes <= MOST_BOXES:
                raise DevClusterError(f"{boxes} boxes are not possible", resolution=f"Specify 0 to {MOST_BOXES}.")
            boxes = tuple(_node_name("gpu", index) for index in range(boxes))
        return tuple(
            box if isinstance(box, BoxSpec) else BoxSpec(name=box, kubelet=self.kubelet, labels=self.box_labels)
            for box in boxes
        )

    def vm_specs(self) -> tuple[VmSpec, ...]:
        """The specs of the virtual nodes."""
        vms = self.vms
        if isinstance(vms, int):
            if not 0 <= vms <= MOST_VMS:
                raise DevClusterError(f"{vms} virtual nodes are not possible", resolution=f"Specify 0 to {MOST_VMS}.")
            vms = tuple(_node_name("vm", index) for index in range(vms))
        return tuple(
            vm if isinstance(vm, VmSpec) else VmSpec(name=vm, kubelet=self.kubelet, labels=self.vm_labels) for vm in vms
        )

    def kwok_spec(self) -> KwokSpec:
        """The spec of the first kwok nodes."""
        return self.kwok if isinstance(self.kwok, KwokSpec) else KwokSpec(count=self.kwok)


def check_fleet(specs: Iterable[KwokSpec], *, fast: bool) -> None:
    """Reject more kwok nodes than a fast cluster can keep Ready."""
    count = sum(spec.count for spec in specs)
    if fast and count > MOST_FAST_KWOK:
        raise DevClusterError(
            f"{count} kwok nodes are too many for a fast cluster, which can keep {MOST_FAST_KWOK} Ready",
            resolution="Start it with fast=False (a dead node is then NotReady after 40 s instead of 6 s).",
        )


def check_name(name: str, what: str) -> None:
    """Names are used for folders, cgroups and Nodes: lower case letters, digits and dashes, at most 40."""
    if not _NAME.fullmatch(name):
        raise DevClusterError(
            f"{name!r} is not a valid name for {what}", resolution="Use up to 40 lower case letters, digits and dashes."
        )


def _node_name(prefix: str, index: int) -> str:
    rounds, letter = divmod(index, 26)
    return f"{prefix}-{string.ascii_lowercase[letter]}{rounds or ''}"
