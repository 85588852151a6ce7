"""The devices of the `sim` vendor: regular files that contain their name, or the control device of a real driver.

There is no GPU behind them.
"""

from pathlib import Path

VENDOR = "sim"
VISIBLE = "SIM_VISIBLE_DEVICES"
"""Variable that the device plugin sets in a container: names of its devices, separated by commas; each is in /dev."""

SHARED = "::"
"""Separator between the name of a shared device and the number of the share, as in the plugin of NVIDIA."""

XID_OFF_THE_BUS = 79
"""XID of NVIDIA for a GPU that has fallen off the bus; default of an unhealthy device without a number."""

_PREFIX = "sim-gpu"


def device_name(number: int) -> str:
    """Name of a device, which is also its ID in the device plugin and the name of its file."""
    return f"{_PREFIX}{number}"


def device_number(name: str) -> int:
    """The number of a device; the inverse of `device_name`."""
    return int(name.removeprefix(_PREFIX))


def is_device_name(text: str) -> bool:
    """Whether a text is the name of a device."""
    return text.startswith(_PREFIX) and text.removeprefix(_PREFIX).isdecimal()


def split_shared_name(identifier: str) -> tuple[str, str]:
    """The name of the device in an ID of the plugin, and the number of the share, empty if it is not shared."""
    name, _, offer = identifier.partition(SHARED)
    return name, offer


def parse_visible(visible: str) -> tuple[str, ...]:
    """The names of devices in a value of VISIBLE."""
    return tuple(name for name in visible.split(",") if name)


def device_folder(run: Path) -> Path:
    """Folder of the device files of the driver, below RUN_DIRECTORY of the node."""
    return run / VENDOR / "dev"


CONTROL = {"nvidia": "/dev/nvidiactl"}
"""Control device of a real driver, by vendor. With such a driver a simulated GPU is this device under another name: a
process that opens it keeps the driver in use.
"""


def unhealthy_devices(run: Path) -> dict[str, int]:
    """The XIDs of the devices that are listed in RUN_DIRECTORY/sim/unhealthy.

    The file contains names, each with an optional XID: `sim-gpu3 63 sim-gpu5`. See docs/concepts/validation.md.
    """
    try:
        words = (run / VENDOR / "unhealthy").read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return {}
    xids: dict[str, int] = {}
    name = ""
    for word in words:
        if word.isdecimal():
            xids[name] = int(word)
        else:
            name = word
            xids[name] = XID_OFF_THE_BUS
    xids.pop("", None)  # a number before the first name belongs to no device
    return xids


def device_contents(version: str, name: str) -> str:
    """The contents of a device file, as `load` of the driver image writes it."""
    return f"{VENDOR} {version} {name} simulated"


def inspect_devices(run: Path, version: str, count: int) -> dict[str, str]:
    """The fault of each device of the loaded driver, by name; empty for a healthy device."""
    unhealthy = unhealthy_devices(run)
    names = [device_name(number) for number in range(count)]
    return {
        name: f"marked unhealthy (XID {unhealthy[name]})"
        if name in unhealthy
        else _device_fault(device_folder(run) / name, version)
        for name in names
    }


def _device_fault(file: Path, version: str) -> str:
    expected = device_contents(version, file.name)
    try:
        contents = file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return f"cannot be opened: {error.strerror}"
    return "" if contents == expected else f"contains {contents[:100]!r} instead of {expected!r}"
