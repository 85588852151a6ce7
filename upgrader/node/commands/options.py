"""Options that several commands of the simulated vendor have."""

import argparse
from pathlib import Path

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.node.driver import devices

CHECK = "exit 0 where all other options are known, and do nothing"
DEVICES = 8
"""Simulated devices of a node."""


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """With the vendor of the loaded driver, the number of devices, and the folder that the node's programs share."""
    made = argparse.ArgumentParser(prog=f"upgrader.node {command}", description=description)
    made.add_argument("--driver", default=devices.VENDOR, help="vendor of the loaded driver")
    made.add_argument("--count", type=int, default=DEVICES, help="devices, where that driver is a real one")
    made.add_argument("--run", type=Path, default=Path(RUN_DIRECTORY))
    return made
