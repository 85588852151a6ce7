"""The devices of the `sim` vendor: plain files that say which they are, or a real driver's control device.

No GPU stands behind them.
"""

from pathlib import Path

VENDOR = "sim"
VISIBLE = "SIM_VISIBLE_DEVICES"
"""Set in a container by the device plugin: names of its devices, separated by commas; each is a file in /dev."""

SHARED = "::"
"""Between the name of a device that is offered several times and the number of the offer, as NVIDIA's plugin has it."""

OFF_THE_BUS = 79
"""NVIDIA's XID for a GPU that has fallen off the bus: what an unhealthy device has met where nobody says otherwise."""

_PREFIX = "sim-gpu"


def name_of(number: int) -> str:
    """Name of a device, of its id in the device plugin and of its file."""
    return f"{_PREFIX}{number}"


def number_of(name: str) -> int:
    """The number of a device; the way back from `name_of`."""
    return int(name.removeprefix(_PREFIX))


def is_name(text: str) -> bool:
    """Whether a text is the name of a device."""
    return text.startswith(_PREFIX) and text.removeprefix(_PREFIX).isdecimal()


def shared_name(identifier: str) -> tuple[str, str]:
    """The device that an id of the plugin stands for, and which of its offers; that is empty where it is not shared."""
    name, _, offer = identifier.partition(SHARED)
    return name, offer


def names_in(visible: str) -> tuple[str, ...]:
    """The devices that VISIBLE names."""
    return tuple(name for name in visible.split(",") if name)


def folder(run: Path) -> Path:
    """Where the driver makes its device files, below the node's RUN_DIRECTORY."""
    return run / VENDOR / "dev"


CONTROL = {"nvidia": "/dev/nvidiactl"}
"""Device node of a real driver, by its vendor: on such a driver a simulated GPU is this node under its own name, so
that whoever opens it holds the driver."""


def unhealthy(run: Path) -> dict[str, int]:
    """The XID of each device that somebody called unhealthy in RUN_DIRECTORY/sim/unhealthy.

    The file holds names, each of which a number may follow: `sim-gpu3 63 sim-gpu5`. See docs/concepts/validation.md.
    """
    try:
        words = (run / VENDOR / "unhealthy").read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return {}
    found: dict[str, int] = {}
    name = ""
    for word in words:
        if word.isdecimal():
            found[name] = int(word)
        else:
            name = word
            found[name] = OFF_THE_BUS
    found.pop("", None)  # a number before any name speaks of no device
    return found


def statement(version: str, name: str) -> str:
    """What a device file says, as the driver image's `load` writes it."""
    return f"{VENDOR} {version} {name} simulated"


def inspect(run: Path, version: str, count: int) -> dict[str, str]:
    """What is wrong with each device of the loaded driver, by name; empty where nothing is."""
    called = unhealthy(run)
    names = [name_of(number) for number in range(count)]
    return {
        name: f"called unhealthy (XID {called[name]})" if name in called else _fault(folder(run) / name, version)
        for name in names
    }


def _fault(file: Path, version: str) -> str:
    expected = statement(version, file.name)
    try:
        said = file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        return f"cannot be opened: {error.strerror}"
    return "" if said == expected else f"says {said[:100]!r}, expected was {expected!r}"
