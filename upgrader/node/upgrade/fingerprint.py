"""The fingerprint of a node, from /proc and /sys of the host; no mount point and no device is opened.

Every read is bounded: a file by its size, a folder by its entries, a trait by its time, because a file of a driver
that hangs does not answer (each trait has a thread, which is left behind then).
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from upgrader.core.node_protocol.node_fingerprint import NodeFingerprint, Trait
from upgrader.node.host.host import Host
from upgrader.node.host.pci import DISPLAYS, PciDevice, read_pci_devices

READ_SECONDS = 30.0
"""Limit of the time in which all traits are read, once."""

MOST_ENTRIES = 4096
"""Entries of a folder of sysfs, or names of a trait."""

MOUNTS_BYTES = 8 << 20
ATTRIBUTE_BYTES = 4096
"""Size of a file of sysfs: at most a page."""

_NETWORK, _NVME = "02", "0108"

_PASSING = re.compile(
    "aufs|binfmt_misc|bpf|cgroup2?|configfs|cpuset|debugfs|devpts|devtmpfs|efivarfs|erofs|fuse.gvfsd-fuse|fuse.lxcfs|"
    "fuse.portal|fusectl|hugetlbfs|iso9660|mqueue|nfsd|nsfs|overlay|proc|pstore|ramfs|resctrl|rootfs|rpc_pipefs|"
    "securityfs|selinuxfs|squashfs|sysfs|tmpfs|tracefs|udf"
)
"""File systems without data that last; any other type counts, since those of vendors are not known."""

_PASSING_PLACES = (
    *("/dev/", "/proc/", "/run/", "/snap/", "/sys/", "/var/run/", "/var/snap/"),
    *(f"/var/lib/{name}/" for name in ("containerd", "containers", "docker", "kubelet", "rancher")),
)
_OF_PODS = re.compile(r"/pods/[0-9a-f-]{32,36}/|/plugins/kubernetes\.io/")
"""Mounts of pods, wherever the folder of the kubelet is."""


def read_fingerprint(host: Host, vendor: str, *, seconds: float = READ_SECONDS) -> NodeFingerprint:
    """The fingerprint of this boot, without the modules of the vendor's driver, which an upgrade replaces."""
    system = host.path("/sys")
    readers: dict[Trait, Callable[[], dict[str, int]]] = {
        Trait.MODULE: lambda: _read_modules(system, vendor),
        Trait.LINK: lambda: _read_links(system),
        Trait.INFINIBAND: lambda: _read_infiniband(system),
        Trait.VIRTUAL_FUNCTIONS: lambda: _read_virtual_functions(system),
        Trait.MOUNT: lambda: _read_mounts(host.root / "proc/1/mountinfo"),
        Trait.PCI_LANES: lambda: _read_pci(system, "current_link_width", _parse_whole),
        Trait.PCI_SPEED: lambda: _read_pci(system, "current_link_speed", _parse_thousandths, without_displays=True),
    }
    values: dict[Trait, dict[str, int]] = {}
    unread: dict[Trait, str] = {}
    threads = [
        threading.Thread(target=_read_trait, args=(trait, read, values, unread), daemon=True)
        for trait, read in readers.items()
    ]
    ends = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    late = {
        trait: f"not read within {seconds:g} s"
        for trait, thread in zip(readers, threads, strict=True)
        if thread.is_alive()
    }
    return NodeFingerprint(
        values={trait: values[trait] for trait in readers if trait in values and trait not in late},
        unread={trait: text for trait in readers if (text := late.get(trait) or unread.get(trait))},
    )


def _read_trait(
    trait: Trait,
    read: Callable[[], dict[str, int]],
    values: dict[Trait, dict[str, int]],
    unread: dict[Trait, str],
) -> None:
    try:
        found = read()
    except (OSError, ValueError) as error:
        unread[trait] = str(error)[:200]
        return
    if len(found) > MOST_ENTRIES:
        unread[trait] = f"more than {MOST_ENTRIES} entries"
    else:
        values[trait] = dict(sorted(found.items()))


def _read_modules(system: Path, vendor: str) -> dict[str, int]:
    modules = {folder.name: folder for folder in _list_entries(system / "module")}
    own = _driver_modules(modules, vendor)
    return {name: 1 for name, folder in modules.items() if name not in own and "O" in _read_attribute(folder / "taint")}


def _driver_modules(modules: dict[str, Path], vendor: str) -> set[str]:
    """The modules of a driver that is still loaded, and those that use it: they cannot be loaded before it is."""
    waiting = [name for name in modules if vendor and (name == vendor or name.startswith(f"{vendor}_"))]
    own: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in modules and name not in own:
            own.add(name)
            waiting += [holder.name for holder in _list_entries(modules[name] / "holders")]
    return own


def _read_links(system: Path) -> dict[str, int]:
    """Links that are up, of devices and bonds. A virtual function may be in the network namespace of a pod."""
    found = {}
    for link in _list_entries(system / "class/net"):
        device = link / "device"
        is_hardware = device.exists() and not (device / "physfn").exists()
        if (is_hardware or (link / "bonding").exists()) and _is_up(link):
            found[link.name] = _parse_whole(_read_attribute(link / "speed"))
    return found


def _is_up(link: Path) -> bool:
    state = _read_attribute(link / "operstate")
    return state == "up" or (state == "unknown" and _read_attribute(link / "carrier") == "1")


def _read_infiniband(system: Path) -> dict[str, int]:
    return {
        f"{device.name}/{port.name}": _parse_thousandths(_read_attribute(port / "rate"))
        for device in _list_entries(system / "class/infiniband")
        if not (device / "device/physfn").exists()
        for port in _list_entries(device / "ports")
        if "ACTIVE" in _read_attribute(port / "state")
    }


def _read_virtual_functions(system: Path) -> dict[str, int]:
    counts = {
        folder.name: _parse_whole(_read_attribute(folder / "sriov_numvfs"))
        for folder in _list_entries(system / "bus/pci/devices")
    }
    return {name: count for name, count in counts.items() if count}


def _read_pci(
    system: Path, attribute: str, parse: Callable[[str], int], *, without_displays: bool = False
) -> dict[str, int]:
    """An attribute of the links of devices. GPUs reduce their speed while they are idle."""
    if not (system / "bus").is_dir():
        return {}
    return {
        f"{_device_kind(device)} {device.address}": parse(
            _read_attribute(system / "bus/pci/devices" / device.address / attribute)
        )
        for device in read_pci_devices(system)
        if _device_kind(device) and not device.virtual and not (without_displays and device.kind.startswith(DISPLAYS))
    }


def _device_kind(device: PciDevice) -> str:
    """What a device is; empty if its link is not compared."""
    if device.kind.startswith(DISPLAYS):
        return "display controller"
    if device.kind.startswith(_NETWORK):
        return "network controller"
    return "NVMe drive" if device.kind == _NVME else ""


def _read_mounts(file: Path) -> dict[str, int]:
    """File systems that last, by the mounts of the node's first process; below automount points they come and go."""
    mounts = list(_split_mounts(file))
    automounted = tuple(point for kind, point in mounts if kind == "autofs")
    return {
        f"{point} ({kind})": 1
        for kind, point in mounts
        if not _PASSING.fullmatch(kind)
        and not point.startswith(_PASSING_PLACES)
        and not _OF_PODS.search(point)
        and (kind == "autofs" or not f"{point}/".startswith(tuple(f"{place}/" for place in automounted)))
    }


def _split_mounts(file: Path) -> Iterator[tuple[str, str]]:
    """Type and mount point of each mount, as in the file: spaces are written as numbers there."""
    for line in _read_text(file, MOUNTS_BYTES).splitlines():
        words = line.split(" ")
        if "-" not in words[6:-2]:
            raise ValueError(f"not a line of a mount: {line[:100]!r}")
        yield words[words.index("-", 6) + 1], words[4]


def _list_entries(folder: Path) -> list[Path]:
    """The entries of a folder, none if it does not exist.

    Raises:
        ValueError: there are too many.
    """
    try:
        found = sorted(islice(folder.iterdir(), MOST_ENTRIES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return []
    if len(found) > MOST_ENTRIES:
        raise ValueError(f"{folder} has more than {MOST_ENTRIES} entries")
    return found


def _read_attribute(file: Path) -> str:
    """A file of sysfs; empty if there is none, or if it has no value now, as the speed of a link that is down."""
    try:
        return _read_text(file, ATTRIBUTE_BYTES).strip()
    except OSError:
        return ""


def _read_text(file: Path, longest: int) -> str:
    """A file; empty if there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too long.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(longest + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if len(text) > longest:
        raise ValueError(f"{file} is longer than {longest} bytes")
    return text.decode(errors="replace")


def _parse_whole(text: str) -> int:
    """A number at the start of a text; 0 if there is none. The speed of a virtual network card is -1."""
    match = re.match(r"[0-9]{1,9}", text)
    return int(match[0]) if match else 0


def _parse_thousandths(text: str) -> int:
    """A thousand times the number at the start of a text, such as 2500 of "2.5 GT/s PCIe"; 0 if there is none."""
    match = re.match(r"[0-9]{1,9}(\.[0-9]{1,3})?", text)
    return round(float(match[0]) * 1000) if match else 0
