"""Programs that a driver image writes beside the record of the loaded driver, in RUN_DIRECTORY/<vendor>/.

They are shell scripts: `unload`, and `devices` of vendors without a check of their own here. They run without the
driver's image; docs/reference/node-contract.md has their contract.
"""

from pathlib import Path

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.programs import ProgramResult, ProgramRunner
from upgrader.node.host.task_result import OrderFailedError

PROGRAM_SECONDS = 60.0
"""Limit of a program that changes nothing."""


def run_driver_program(
    program: Path, programs: ProgramRunner, *, failure: str, seconds: float = PROGRAM_SECONDS
) -> ProgramResult:
    """Run a program of a driver to its end. Its exit code is for the caller.

    Args:
        program: path of the script.
        programs: runs it.
        failure: begin of the message if it cannot be started, or does not end in time.
        seconds: time within which it must end.

    Raises:
        OrderFailedError: DEVICE_FAILED: it cannot be started, or does not end in time.
    """
    try:
        return programs.run(["/bin/sh", str(program)], seconds=seconds)
    except ProcessError as error:
        raise OrderFailedError(Reason.DEVICE_FAILED, f"{failure}: {error}") from error
