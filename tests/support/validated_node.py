"""A node as the driver validation sees it: folders as `load` leaves them, and what the kubelet advertises."""

import msgspec
import pytest

from tests.support.node_world import VirtualClock
from tests.support.smi_reports import make_gpu, render_links, render_report
from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import NodeDriver, ValidateDriverOrder
from upgrader.node.host.programs import ProgramResult
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.driver_validation import ValidationPaths, validate_driver

RESOURCE = "nvidia.com/gpu"
UUIDS = ("GPU-aaaa", "GPU-bbbb")
ADDRESSES = ("0000:00:00.0", "0000:01:00.0")
NVIDIA = "535.261.03"


class PlayedSmi:
    """nvidia-smi, played: reports of `gpus`, then of those in `later`, and `links`; or the result `ended`."""

    def __init__(self):
        self.gpus = [make_gpu(uuid, address) for uuid, address in zip(UUIDS, ADDRESSES, strict=True)]
        self.later = []
        self.links = {uuid: {0: "26.562 GB/s", 1: "26.562 GB/s"} for uuid in UUIDS}
        self.version = NVIDIA
        self.ended = None
        self.links_code = 0
        self.calls = []
        self.hangs = False

    def run(self, words, *, seconds):
        self.calls.append(words[4:])
        if self.hangs:
            raise ProcessError(f"did not end within {seconds:.0f} s")
        if self.ended is not None:
            return self.ended
        if words[-2:] == ["-q", "-x"]:
            report = render_report(self.version, self.gpus)
            self.gpus = self.later.pop(0) if self.later else self.gpus
            return ProgramResult(code=0, output=report)
        return ProgramResult(code=self.links_code, output=render_links(self.links))


def lay_gpus(places, gpus):
    """The GPUs, by address and UUID, as kernel and driver show them: PCI functions below ports, /proc, device files."""
    (places.sys / "bus/pci/devices").mkdir(parents=True)
    for minor, (address, uuid) in enumerate(gpus.items()):
        port = places.sys / f"devices/port{minor}"
        function = port / address
        function.mkdir(parents=True)
        (port / "max_link_width").write_text("16\n")
        (function / "class").write_text("0x030200\n")
        (function / "vendor").write_text("0x10de\n")
        (function / "driver").symlink_to("../../bus/pci/drivers/nvidia")
        (places.sys / "bus/pci/devices" / address).symlink_to(function)
        about = places.proc / "driver/nvidia/gpus" / address
        about.mkdir(parents=True)
        (about / "information").write_text(f"Model: \t\t H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        (places.dev / f"nvidia{minor}").write_text("")
    (places.dev / "nvidiactl").write_text("")
    (places.proc / "devices").write_text("Character devices:\n195 nvidia\n  1 nvidia-uvm\n\nBlock devices:\n")
    (places.dev / "nvidia-uvm").symlink_to("/dev/null")  # its major number is 1


def remove_gpu(places, address):
    """The driver loses a GPU, which stays on the bus."""
    folder = places.proc / "driver/nvidia/gpus" / address
    (folder / "information").unlink()
    folder.rmdir()


class ValidatedNode:
    """Folders as the driver's `load` leaves them, and what the kubelet offers."""

    def __init__(self, folder):
        parts = {name: folder / name for name in ("run", "drivers", "proc", "sys", "dev")}
        self.places = ValidationPaths(**parts)
        for part in parts.values():
            part.mkdir()
        self.clock, self.programs = VirtualClock(), PlayedSmi()
        self.offered = set()
        self.answers = lambda: dict.fromkeys(self.offered, RESOURCE)

    def record(self, vendor, version, devices, **more):
        facts = {"vendor": vendor, "version": version, "kernel": "k", "bootId": "boot-1", "devices": devices, **more}
        (self.places.run / vendor / "dev").mkdir(parents=True, exist_ok=True)
        (self.places.run / vendor / "loaded.json").write_bytes(msgspec.json.encode(facts))

    def look(self, vendor="sim", version="2.0.0", **order):
        asked = {
            "driver": NodeDriver(vendor=vendor, version=version),
            "resource": RESOURCE,
            "boot_id": "boot-1",
            **order,
        }
        return validate_driver(
            ValidateDriverOrder(**asked),
            places=self.places,
            list_allocatable=self.answers,
            programs=self.programs,
            clock=self.clock,
        )

    def refused(self, **order):
        """(check, reason, message) of what is wrong."""
        with pytest.raises(OrderFailedError) as caught:
            self.look(**order)
        return caught.value.facts["check"], caught.value.reason, str(caught.value)
