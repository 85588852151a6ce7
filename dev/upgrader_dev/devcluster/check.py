"""Checks for missing requirements of a cluster on this machine, before anything is started."""

import shutil
from pathlib import Path

from upgrader.core.errors import DevClusterError
from upgrader.process import run
from upgrader_dev.devcluster import cgroups
from upgrader_dev.devcluster.box.node_files import CNI_PROGRAMS

ALWAYS = {"openssl": "openssl"}
"""Program → Debian package."""
WITH_NAMESPACES = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount"}
WITH_BOXES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    "iptables": "iptables",
    "umount": "mount",
}
WITH_VMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "busybox": "busybox-static",
    "dpkg-deb": "dpkg",
    "iptables": "iptables",
}
_CNI = {"bridge": "containernetworking-plugins", "host-local": "containernetworking-plugins"}


def require_host(*, namespaces: bool, boxes: bool, vms: bool = False) -> None:
    """Raise DevClusterError with all missing requirements if a cluster cannot run here."""
    if (boxes or vms) and not namespaces:
        raise DevClusterError(
            "boxes require root (for network, mount and pid namespaces), and virtual nodes too (for links and images)",
            resolution="Run as root, or start only kwok nodes: `upgrader dev up --boxes 0 --kwok 20`.",
        )
    if boxes:
        cgroups.require_support()
    missing = missing_packages(namespaces=namespaces, boxes=boxes, vms=vms)
    if missing:
        raise DevClusterError(
            f"Debian packages are missing: {' '.join(missing)}",
            resolution="`bash dev/upgrader_dev/devcluster/install-packages.sh` installs them as root.",
        )
    if vms:
        require_tun(Path("/dev/net/tun"))
    if boxes or vms:
        bridge_filter = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
        if bridge_filter.exists() and bridge_filter.read_text().strip() == "1":
            require_forwarding(run(["iptables", "--list-rules", "FORWARD"], timeout=20).text)


def lacking_for_virtual_nodes(*, root: bool) -> str:
    """Why virtual nodes cannot run here; empty if they can."""
    try:
        require_host(namespaces=root, boxes=False, vms=True)
    except DevClusterError as error:
        return str(error)
    return ""


def require_tun(device: Path) -> None:
    """Raise DevClusterError if virtual machines cannot have network cards."""
    if not device.exists():
        raise DevClusterError(
            f"virtual nodes require {device}, which does not exist",
            resolution="Run `modprobe tun`, or pass the device to this container.",
        )


def require_forwarding(rules: str) -> None:
    """Raise DevClusterError if the machine's firewall drops packets between nodes on the bridge."""
    accepts = any(line.startswith("-A FORWARD") and "upg+" in line and "ACCEPT" in line for line in rules.splitlines())
    if "-P FORWARD DROP" in rules and not accepts:
        raise DevClusterError(
            "this machine's firewall drops packets between the nodes (FORWARD policy DROP)",
            resolution="Allow it: `iptables -I FORWARD -i upg+ -o upg+ -j ACCEPT`.",
        )


def missing_packages(*, namespaces: bool, boxes: bool, vms: bool = False) -> list[str]:
    """The Debian packages of missing programs."""
    required = {
        **ALWAYS,
        **(WITH_NAMESPACES if namespaces else {}),
        **(WITH_BOXES if boxes else {}),
        **(WITH_VMS if vms else {}),
    }
    packages = {package for program, package in required.items() if shutil.which(program) is None}
    if boxes:
        packages |= {package for program, package in _CNI.items() if not (Path(CNI_PROGRAMS) / program).exists()}
    return sorted(packages)
