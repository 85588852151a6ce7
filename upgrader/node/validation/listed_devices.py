"""The devices of a driver whose vendor is not known here: the driver lists them by its own program.

The driver image leaves the program `devices` beside its `unload` in RUN_DIRECTORY/<vendor>/. It prints a line for each
device, `ok ID` or `fault ID TEXT`, and ends with 0; other lines are ignored. docs/reference/node-contract.md has the
contract.
"""

import re
from pathlib import Path

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.driver.driver_programs import run_driver_program
from upgrader.node.host.programs import ProgramRunner
from upgrader.node.host.task_result import OrderFailedError

MOST = 1024
"""Devices of a node."""
LONGEST = 200
"""Characters of a fault."""
_LINE = re.compile(r"(?:ok (?P<ok>[^\s]{1,64})|fault (?P<id>[^\s]{1,64}) (?P<text>.+))")


def inspect_listed_devices(run: Path, vendor: str, programs: ProgramRunner) -> dict[str, str]:
    """The fault of each device by its ID, empty for a healthy device.

    Raises:
        OrderFailedError: BAD_ORDER: the driver has no such program; DEVICE_FAILED: it failed, or listed nothing.
    """
    program = run / vendor / "devices"
    if not program.is_file():
        raise OrderFailedError(
            Reason.BAD_ORDER, f"no device check exists for vendor {vendor!r}, and its driver has no program {program}"
        )
    ended = run_driver_program(program, programs, failure="the devices cannot be listed")
    if ended.code != 0:
        output = ended.one_line[:LONGEST]
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{program} ended with exit code {ended.code}: {output}")
    matches = [match for line in ended.output.splitlines() if (match := _LINE.fullmatch(line.strip()))]
    found = {match["ok"] or match["id"]: (match["text"] or "")[:LONGEST] for match in matches}
    if not 0 < len(found) <= MOST:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{program} lists {len(found)} devices, 1 to {MOST} are expected")
    return found
