"""The devices of the `sim` driver: plain files that say which they are; no GPU stands behind them."""

from pathlib import Path

VENDOR = "sim"
VISIBLE = "SIM_VISIBLE_DEVICES"
"""Set in a container by the device plugin: names of its devices, separated by commas; each is a file in /dev."""


def name_of(number: int) -> str:
    """Name of a device, of its id in the device plugin and of its file."""
    return f"sim-gpu{number}"


def names_in(visible: str) -> tuple[str, ...]:
    """The devices that VISIBLE names."""
    return tuple(name for name in visible.split(",") if name)


def folder(run: Path) -> Path:
    """Where the driver makes its device files, below the node's RUN_DIRECTORY."""
    return run / VENDOR / "dev"


def statement(version: str, name: str) -> str:
    """What a device file says, as the driver image's `load` writes it."""
    return f"{VENDOR} {version} {name} simulated"
