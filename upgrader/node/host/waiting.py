"""What an operand's init container does: wait on the node until the operands before it have done their work."""

import logging
from collections.abc import Sequence
from pathlib import Path

from upgrader.node.host.boot import counts
from upgrader.node.host.clock import Clock

LOOK_SECONDS = 0.2
SAY_SECONDS = 30.0
_log = logging.getLogger(__name__)


def wait_for(operand: str, files: Sequence[Path], clock: Clock) -> None:
    """Return when all files are there, of this boot. It waits as long as it takes: the stack's status says for whom.

    `operand` is its name, for the log.
    """
    waited = 0.0
    while missing := [str(file) for file in files if not counts(file)]:
        if waited % SAY_SECONDS < LOOK_SECONDS:
            _log.info("waiting for operand %s on this node: %s is not there of this boot", operand, ", ".join(missing))
        clock.wait(LOOK_SECONDS)
        waited += LOOK_SECONDS
    _log.info("operand %s is ready on this node", operand)
