"""Container runtimes that serve CDI devices (https://github.com/cncf-tags/container-device-interface). Pure.

A runtime that does not serve them ignores them without an error: the pod would start without a device.
"""

import re
from typing import NamedTuple

_CONTAINERD = re.compile(r"\bcontainerd\b.*?\bv?(\d+)\.(\d+)\.\d+")
_CRIO = re.compile(r"\bcrio version v?(\d+)\.(\d+)")
_SWITCH = re.compile(r"^\s*enable_cdi\s*=\s*(true|false)\b", re.MULTILINE)
CRIO_SINCE = (1, 23)


class Serving(NamedTuple):
    """Whether a runtime serves CDI devices, and why, as a sentence."""

    cdi: bool
    why: str


def serves_cdi(version: str, configuration: str) -> Serving:
    """Whether a runtime serves CDI devices.

    Args:
        version: the version output of its program.
        configuration: the output of `containerd config dump`; containerd 1.7 has a switch that is off by default, from
            2.0 on it is on by default.
    """
    if match := _CRIO.search(version):
        number = (int(match[1]), int(match[2]))
        what = f"CRI-O {match[1]}.{match[2]}"
        served = number >= CRIO_SINCE
        return Serving(served, f"{what} {'serves' if served else 'does not serve'} CDI devices")
    match = _CONTAINERD.search(version)
    if match is None:
        return Serving(False, f"the container runtime is not known: {' '.join(version.split())[:200]!r}")
    number, what = (int(match[1]), int(match[2])), f"containerd {match[1]}.{match[2]}"
    switch = _SWITCH.search(configuration)
    if number < (1, 7):
        return Serving(False, f"{what} does not serve CDI devices, which require containerd 1.7")
    on = switch[1] == "true" if switch is not None else number >= (2, 0)
    return Serving(on, f"{what} {'serves' if on else 'is configured not to serve'} CDI devices")
