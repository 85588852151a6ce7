"""A node as the driver validation sees it: folders as `load` leaves them, and what the kubelet advertises."""

import msgspec
import pytest

from tests.support.node_world import VirtualClock
from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import NodeDriver, ValidateDriverOrder
from upgrader.node.driver.driver_validation import ValidationPaths, validate_driver
from upgrader.node.host.programs import ProgramResult
from upgrader.node.host.task_result import OrderFailedError

RESOURCE = "nvidia.com/gpu"
UUIDS = ("GPU-aaaa", "GPU-bbbb")
NVIDIA = "535.261.03"


class PlayedSmi:
    """nvidia-smi, played."""

    def __init__(self):
        self.ended = ProgramResult(code=0, output="".join(f"{uuid}, {NVIDIA}\n" for uuid in UUIDS))
        self.words = []
        self.hangs = False

    def run(self, words, *, seconds):
        self.words = words
        if self.hangs:
            raise ProcessError(f"did not end within {seconds:.0f} s")
        return self.ended


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
