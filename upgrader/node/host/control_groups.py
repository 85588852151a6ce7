"""The pod or systemd unit of a process, from the names of its control groups."""

import re
from pathlib import Path

from msgspec import Struct

from upgrader.node.host.text_files import read_optional

_POD = re.compile(r"pod([0-9a-f]{8}[-_](?:[0-9a-f]{4}[-_]){3}[0-9a-f]{12}|[0-9a-f]{32})")
_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)", re.MULTILINE)


class ProcessOwner(Struct, frozen=True, kw_only=True):
    """`pod` is the UID of the process's pod, `unit` its systemd unit; both are empty for other processes.

    The UID of a static pod in a control group is the hash of its configuration.
    """

    pod: str = ""
    unit: str = ""


def read_owner(process: Path) -> ProcessOwner:
    """The owner of a process; without pod and unit if it has ended.

    Args:
        process: /proc/PID.
    """
    try:
        groups = read_optional(process / "cgroup")
    except OSError:
        return ProcessOwner()  # it ended during the read
    pod, units = _POD.search(groups), _UNIT.findall(groups)
    if pod is not None:
        return ProcessOwner(pod=pod[1].replace("_", "-"))
    return ProcessOwner(unit=units[-1]) if units else ProcessOwner()
