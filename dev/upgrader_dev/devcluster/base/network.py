"""Links of a cluster: one bridge on the host, one cable per box, static routes."""

from collections.abc import Iterable
from pathlib import Path

from upgrader.process import run
from upgrader_dev.devcluster.base.addresses import Addresses, mac_address
from upgrader_dev.devcluster.base.spec import MOST_BOXES

_SECONDS = 20.0
CONTROL_PLANE_LAST = 2
"""The control plane is a box too: its address ends in 2."""


def make_bridge(addresses: Addresses, owner: str) -> None:
    """Create the bridge, with `owner` as its alias: only its owner removes it.

    Raises:
        ProgramFailedError: a link of this name exists.
    """
    link = addresses.link
    # a fixed MAC address: otherwise a bridge takes the lowest one of its ports, which changes with the nodes
    _run_ip("link", "add", link, "address", mac_address(addresses.host), "type", "bridge")
    _run_ip("link", "set", link, "alias", owner)
    _run_ip("addr", "add", f"{addresses.host}/24", "dev", link)
    _run_ip("link", "set", link, "up")


def remove_bridge(addresses: Addresses, owner: str) -> None:
    """Remove the bridge if this cluster owns it."""
    alias = Path("/sys/class/net") / addresses.link / "ifalias"
    if alias.exists() and alias.read_text().strip() == owner:
        _run_ip("link", "del", addresses.link)


def plug_cable(addresses: Addresses, last: int, pid: int) -> None:
    """A cable from the bridge into the network namespace of `pid`, where its end is eth0."""
    cable = addresses.cable_name(last)
    remove_cable(addresses, last)
    _run_ip(
        "link",
        "add",
        cable,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        str(pid),
        "address",
        mac_address(_box_interface(addresses, last)),
    )
    _run_ip("link", "set", cable, "master", addresses.link, "up")


def plug_tap(addresses: Addresses, last: int) -> None:
    """A cable from the bridge into a virtual machine: its end is the network card of QEMU."""
    cable = addresses.cable_name(last)
    remove_cable(addresses, last)
    _run_ip("tuntap", "add", "dev", cable, "mode", "tap")
    _run_ip("link", "set", cable, "master", addresses.link, "up")


def remove_cable(addresses: Addresses, last: int) -> None:
    """Remove a cable, if it exists; it also disappears some time after the namespace of one end."""
    if is_connected(addresses, last) is not None:
        run(["ip", "link", "del", addresses.cable_name(last)], timeout=_SECONDS, check=False)


def is_connected(addresses: Addresses, last: int) -> bool | None:
    """Whether the cable is plugged in; None if it does not exist."""
    flags = Path("/sys/class/net") / addresses.cable_name(last) / "flags"
    try:
        return bool(int(flags.read_text(), 16) & 1)
    except (
        OSError
    ):  # it does not exist, or (EINVAL) it disappeared during the read: a link is removed with its namespace
        return None


def set_connected(addresses: Addresses, last: int, *, up: bool) -> None:
    """Unplug or plug in the host's end: the box's end loses its carrier but keeps addresses and routes."""
    _run_ip("link", "set", addresses.cable_name(last), "up" if up else "down")


def interface_commands(addresses: Addresses, last: int) -> str:
    """The input of `ip -batch` inside the box: all pod subnets follow from the index, so nothing changes later."""
    control_plane = last == CONTROL_PLANE_LAST
    lines = ["link set lo up", f"addr add {_box_interface(addresses, last)}/24 dev eth0"]
    if control_plane:  # no kube-proxy: the address of the service `kubernetes` belongs to the API server
        lines.append(f"addr add {addresses.kubernetes_service}/32 dev lo")
    lines.append("link set eth0 up")
    if not control_plane:
        lines.append(f"route add {addresses.services} via {addresses.control_plane}")
    lines += _pod_routes(addresses, range(1, MOST_BOXES + 1), last)
    return "\n".join(lines) + "\n"


def _pod_routes(addresses: Addresses, indexes: Iterable[int], last: int) -> list[str]:
    return [
        f"route add {addresses.pod_subnet(index)} via {addresses.node_address(index)}"
        for index in indexes
        if addresses.last_octet(index) != last
    ]


def _box_interface(addresses: Addresses, last: int) -> str:
    return addresses.control_plane.rpartition(".")[0] + f".{last}"


def _run_ip(*words: str) -> None:
    run(["ip", *words], timeout=_SECONDS)
