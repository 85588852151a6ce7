"""What the first process of a box is to do, written to the box's disk before power-on."""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from upgrader.process.places import write_atomically
from upgrader.process.supervise import Program

FILE = "plan.json"


class Ready(Struct, frozen=True, kw_only=True):
    """What to wait for before going on: an https body that is exactly `ok`, or a unix socket that takes connections."""

    kind: Literal["https", "socket"]
    address: str
    ca: str = ""
    certificate: str = ""
    key: str = ""


class Stage(Struct, frozen=True, kw_only=True):
    """Programs to start and keep running; then wait; then run commands once."""

    programs: tuple[Program, ...]
    ready: Ready | None = None
    commands: tuple[tuple[str, ...], ...] = ()


class NodeMounts(Struct, frozen=True, kw_only=True):
    """A node's own file systems, as paths on the host."""

    var_lib: str
    var_log: str
    shared: str
    """One directory for all boxes of the cluster, at /var/lib/shared: stands in for network storage."""
    kernel: str = ""
    """The simulated kernel name; empty: the machine's own."""


class Plan(Struct, frozen=True, kw_only=True):
    """A box from power-on. `network` is input for `ip -batch`, empty without a network namespace."""

    hostname: str
    holds: str
    journal: str
    stages: tuple[Stage, ...]
    network: str = ""
    mounts: NodeMounts | None = None

    @property
    def kernel(self) -> str:
        """The simulated kernel name of this boot, if it has one."""
        return self.mounts.kernel if self.mounts is not None else ""


def write_plan(folder: Path, plan: Plan) -> None:
    """Keep the plan on the box's disk."""
    write_atomically(folder / FILE, msgspec.json.format(msgspec.json.encode(plan)), mode=0o600)


def read_plan(folder: Path) -> Plan:
    """The plan of the box."""
    return msgspec.json.decode((folder / FILE).read_bytes(), type=Plan)
