"""Which container runtimes serve CDI devices (https://github.com/cncf-tags/container-device-interface). Pure.

A runtime that does not serve them passes them over without a word: the pod would start and see no device.
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
    """What a runtime can.

    Args:
        version: what its program says of its version.
        configuration: what `containerd config dump` says; containerd 1.7 has a switch that is off by default, from 2.0
            on it is on by default.
    """
    if found := _CRIO.search(version):
        number = (int(found[1]), int(found[2]))
        what = f"CRI-O {found[1]}.{found[2]}"
        served = number >= CRIO_SINCE
        return Serving(served, f"{what} {'serves' if served else 'does not serve'} CDI devices")
    found = _CONTAINERD.search(version)
    if found is None:
        return Serving(False, f"the container runtime is not known: {' '.join(version.split())[:200]!r}")
    number, what = (int(found[1]), int(found[2])), f"containerd {found[1]}.{found[2]}"
    said = _SWITCH.search(configuration)
    if number < (1, 7):
        return Serving(False, f"{what} does not serve CDI devices, 1.7 is the first that can")
    on = said[1] == "true" if said is not None else number >= (2, 0)
    return Serving(on, f"{what} {'serves' if on else 'is configured not to serve'} CDI devices")
