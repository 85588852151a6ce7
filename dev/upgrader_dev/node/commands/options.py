"""Options that several commands have."""

import argparse
from pathlib import Path

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.node.validation import devices

CHECK = "check the other options and exit with code 0"
DEVICE_COUNT = 8
"""Number of simulated devices of a node with a real driver."""


def create_parser(command: str, description: str) -> argparse.ArgumentParser:
    """A parser with the common options: vendor of the loaded driver, number of devices, RUN_DIRECTORY."""
    parser = argparse.ArgumentParser(prog=f"upgrader_dev.node {command}", description=description)
    parser.add_argument("--driver", default=devices.VENDOR, help="vendor of the loaded driver")
    parser.add_argument(
        "--count", type=int, default=DEVICE_COUNT, help="number of devices, if the driver is a real one"
    )
    parser.add_argument("--run", type=Path, default=Path(RUN_DIRECTORY))
    return parser
