"""What this machine lacks for a cluster, said before anything is started."""

import shutil
from pathlib import Path

from upgrader.core.errors import DevClusterError
from upgrader.devcluster import cgroups
from upgrader.devcluster.node_files import CNI_PROGRAMS
from upgrader.process import run

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
_CNI = {"bridge": "containernetworking-plugins", "host-local": "containernetworking-plugins"}


def require(*, namespaces: bool, boxes: bool) -> None:
    """Raise DevClusterError, with all that is missing, unless a cluster can run here."""
    if boxes and not namespaces:
        raise DevClusterError(
            "boxes need root: network, mount and pid namespaces of their own",
            resolution="Run as root, or ask for kwok nodes only: `upgrader dev up --boxes 0 --kwok 20`.",
        )
    if boxes:
        require_cgroup_v1(cgroups.ROOT)
    missing = missing_packages(namespaces=namespaces, boxes=boxes)
    if missing:
        raise DevClusterError(
            f"Debian packages are missing: {' '.join(missing)}",
            resolution="`bash upgrader/devcluster/install-packages.sh` installs them as root.",
        )
    if boxes:
        bridged = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
        if bridged.exists() and bridged.read_text().strip() == "1":
            require_forwarding(run(["iptables", "--list-rules", "FORWARD"], timeout=20).text)


def require_cgroup_v1(root: Path) -> None:
    """Raise DevClusterError where controllers are not mounted one by one below `root`."""
    if not (root / "memory").is_dir():
        raise DevClusterError(
            "boxes are written for cgroup v1, and this machine has cgroup v2",
            resolution="Ask for kwok nodes only, which work on both: `upgrader dev up --boxes 0 --kwok 20`.",
        )


def require_forwarding(rules: str) -> None:
    """Raise DevClusterError when the machine's firewall would drop what boxes send each other over the bridge."""
    accepts = any(line.startswith("-A FORWARD") and "upg+" in line and "ACCEPT" in line for line in rules.splitlines())
    if "-P FORWARD DROP" in rules and not accepts:
        raise DevClusterError(
            "this machine's firewall drops what the boxes would send each other (FORWARD policy DROP)",
            resolution="Allow it: `iptables -I FORWARD -i upg+ -o upg+ -j ACCEPT`.",
        )


def missing_packages(*, namespaces: bool, boxes: bool) -> list[str]:
    """The Debian packages whose programs are not there."""
    wanted = {**ALWAYS, **(WITH_NAMESPACES if namespaces else {}), **(WITH_BOXES if boxes else {})}
    packages = {package for program, package in wanted.items() if shutil.which(program) is None}
    if boxes:
        packages |= {package for program, package in _CNI.items() if not (Path(CNI_PROGRAMS) / program).exists()}
    return sorted(packages)
