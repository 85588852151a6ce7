"""The instructions for the first process of a box, written to the box's disk before power-on."""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from upgrader.process.places import write_atomically
from upgrader.process.supervise import SupervisedProgram

FILE = "plan.json"


class Ready(Struct, frozen=True, kw_only=True):
    """The condition to wait for: an https response that is exactly `ok`, or a unix socket that accepts connections."""

    kind: Literal["https", "socket"]
    address: str
    ca: str = ""
    certificate: str = ""
    key: str = ""


class BootStage(Struct, frozen=True, kw_only=True):
    """Programs to start and keep running; then a condition; then commands to run once."""

    programs: tuple[SupervisedProgram, ...]
    ready: Ready | None = None
    commands: tuple[tuple[str, ...], ...] = ()


class NodeMounts(Struct, frozen=True, kw_only=True):
    """The file systems of a node, as paths on the host."""

    var_lib: str
    var_log: str
    shared: str
    """One directory for all boxes of the cluster, at /var/lib/shared: it simulates network storage."""
    kernel: str = ""
    """The simulated kernel name; empty: the machine's kernel."""


class Plan(Struct, frozen=True, kw_only=True):
    """The boot of a box. `network` is input for `ip -batch`, empty without a network namespace."""

    hostname: str
    holds: str
    journal: str
    stages: tuple[BootStage, ...]
    network: str = ""
    mounts: NodeMounts | None = None

    @property
    def kernel(self) -> str:
        """The simulated kernel name of this boot, if any."""
        return self.mounts.kernel if self.mounts is not None else ""


def write_plan(folder: Path, plan: Plan) -> None:
    """Write the plan to the box's disk."""
    write_atomically(folder / FILE, msgspec.json.format(msgspec.json.encode(plan)), mode=0o600)


def read_plan(folder: Path) -> Plan:
    """The plan of the box."""
    return msgspec.json.decode((folder / FILE).read_bytes(), type=Plan)
