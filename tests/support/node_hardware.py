"""/sys and /proc of a node with network cards, drives and mounts, as files; the fingerprint of a node reads these."""

from pathlib import Path

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
23 22 0:21 / /proc rw,nosuid shared:12 - proc proc rw
24 22 0:22 / /run rw,nosuid shared:13 - tmpfs tmpfs rw
25 24 259:9 / /run/media/stick rw - vfat /dev/sdz1 rw
26 22 0:46 / /scratch rw,relatime shared:40 - wekafs default/scratch rw
27 22 0:47 / /home rw,relatime shared:41 - autofs systemd-1 rw,fd=52
28 27 0:48 / /home/ada rw,relatime shared:42 - nfs4 filer:/home/ada rw
29 22 0:49 / /var/lib/kubelet/pods/0aa0/volumes/kubernetes.io~nfs/data rw - nfs4 filer:/data rw
30 22 0:50 / /k8s/pods/01234567-89ab-cdef-0123-456789abcdef/volumes/x rw - nfs4 filer:/data rw
31 22 0:51 / /var/lib/docker/overlay2/a/merged rw - overlay overlay rw
32 22 259:3 / /var/lib/docker rw - xfs /dev/nvme0n1p3 rw
33 22 0:52 / /data\\040sets ro - nfs4 filer:/sets ro
"""


class NodeHardware:
    """Hardware below the root of a node; each part can be changed and removed."""

    def __init__(self, root: Path) -> None:
        self.system = root / "sys"
        self.mounts = root / "proc/1/mountinfo"
        self.write_mounts(MOUNTS)
        self.add_module("knem", taint="OE")
        self.add_module("mlx5_core")
        self.add_module("nvidia", taint="POE", used_by=("nvidia_uvm", "gdrdrv"))
        self.add_module("nvidia_uvm", taint="POE")
        self.add_module("gdrdrv", taint="OE")
        card = self.add_device("0000:3b:00.0", kind="0x020700", lanes="16", speed="32.0 GT/s PCIe", functions=8)
        self.add_device("0000:3b:00.1", kind="0x020700", lanes="16", speed="32.0 GT/s PCIe", physical=card)
        self.add_device("0000:1b:00.0", kind="0x030200", lanes="16", speed="2.5 GT/s PCIe")
        self.add_device("0000:5c:00.0", kind="0x010802", lanes="4", speed="16.0 GT/s PCIe")
        self.add_device("0000:00:1f.0", kind="0x060100")
        self.add_link("ens1", speed="100000", device="0000:3b:00.0")
        self.add_link("ens1v0", speed="100000", device="0000:3b:00.1")
        self.add_link("ens2", state="down", speed="-1", device="0000:3b:00.0")
        self.add_link("cali01", speed="10000")
        self.add_link("bond0", speed="200000")
        (self.system / "class/net/bond0/bonding").mkdir()
        self.add_port("mlx5_0", "1")
        self.add_port("mlx5_1", "1", state="1: DOWN", rate="10 Gb/sec (4X SDR)")

    def write(self, path: str, text: str) -> None:
        """Write a file of sysfs."""
        file = self.system / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def write_mounts(self, text: str) -> None:
        """Write the mounts of the node's first process."""
        self.mounts.parent.mkdir(parents=True, exist_ok=True)
        self.mounts.write_text(text)

    def add_module(self, name: str, *, taint: str = "", used_by: tuple[str, ...] = ()) -> None:
        """Load a module."""
        self.write(f"module/{name}/taint", taint)
        for user in used_by:
            self.write(f"module/{name}/holders/{user}", "")

    def add_device(
        self, address: str, *, kind: str, lanes: str = "", speed: str = "", functions: int = 0, physical: str = ""
    ) -> str:
        """Add a PCI device; returns its address. `physical`: it is a virtual function of that device."""
        folder = f"bus/pci/devices/{address}"
        values = {"class": kind, "vendor": "0x15b3", "current_link_width": lanes, "current_link_speed": speed}
        for name, value in values.items():
            self.write(f"{folder}/{name}", value)
        if functions:
            self.write(f"{folder}/sriov_numvfs", str(functions))
        if physical:
            (self.system / folder / "physfn").symlink_to(f"../{physical}")
        return address

    def add_link(self, name: str, *, state: str = "up", speed: str, device: str = "") -> None:
        """Add a network link; without a device it is virtual."""
        self.write(f"class/net/{name}/operstate", state)
        self.write(f"class/net/{name}/speed", speed)
        if device:
            (self.system / f"class/net/{name}/device").symlink_to(f"../../../bus/pci/devices/{device}")

    def add_port(self, device: str, port: str, *, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)") -> None:
        """Add a port of an InfiniBand device."""
        self.write(f"class/infiniband/{device}/ports/{port}/state", state)
        self.write(f"class/infiniband/{device}/ports/{port}/rate", rate)
