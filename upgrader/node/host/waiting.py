"""The wait in the init containers of an operand, until earlier operands on the node are done."""

import logging
from collections.abc import Sequence
from pathlib import Path

from upgrader.node.host.boot import is_of_this_boot
from upgrader.node.host.clock import NodeClock

POLL_SECONDS = 0.2
LOG_SECONDS = 30.0
_log = logging.getLogger(__name__)


def wait_for_operand(operand: str, files: Sequence[Path], clock: NodeClock) -> None:
    """Return when all files exist and are of this boot. There is no timeout: the status of the stack shows the wait.

    `operand` is the name of the awaited operand, for the log.
    """
    waited = 0.0
    while missing := [str(file) for file in files if not is_of_this_boot(file)]:
        if waited % LOG_SECONDS < POLL_SECONDS:
            _log.info(
                "waiting for operand %s on this node: %s does not exist on this boot", operand, ", ".join(missing)
            )
        clock.wait(POLL_SECONDS)
        waited += POLL_SECONDS
    _log.info("operand %s is ready on this node", operand)
