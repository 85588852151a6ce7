"""Addresses of a cluster: a /16 inside network namespaces, or free ports on the loopback without root."""

import ipaddress
import socket
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.errors import DevClusterError
from upgrader.process import run

# 10.88.0.0/16 belongs to podman
SECOND_OCTETS = tuple(octet for octet in range(64, 128) if octet != 88)
_FIRST_NODE = 10
"""Node I has NET.(10+I) and the pods 10.X.(10+I).0/24."""


class Addresses(Struct, frozen=True, kw_only=True):
    """The addresses of all parts. `octet` is X of the cluster's 10.X.0.0/16; 0: no namespaces, all on the loopback."""

    octet: int
    api_port: int = 443
    registry_port: int = 5000
    etcd_port: int = 2379
    etcd_peer_port: int = 2380
    controller_manager_port: int = 10257
    scheduler_port: int = 10259

    @property
    def namespaced(self) -> bool:
        """Whether the cluster has its own network namespaces."""
        return self.octet != 0

    @property
    def link(self) -> str:
        """The name of the bridge, and the prefix of the host's ends of the nodes' cables."""
        return f"upg{self.octet}"

    @property
    def host(self) -> str:
        """The address of the bridge: the host, from the nodes."""
        return f"10.{self.octet}.0.1"

    @property
    def control_plane(self) -> str:
        """The address of the API server and the registry."""
        return f"10.{self.octet}.0.2" if self.namespaced else "127.0.0.1"

    @property
    def server(self) -> str:
        """The address of the API server for a kubeconfig."""
        return f"https://{self.control_plane}:{self.api_port}"

    @property
    def registry(self) -> str:
        """Host and port, as in the name of an image."""
        return f"{self.control_plane}:{self.registry_port}"

    @property
    def services(self) -> str:
        """The subnet of cluster IPs."""
        return f"10.{self.octet}.1.0/24" if self.namespaced else "10.63.1.0/24"

    @property
    def kubernetes_service(self) -> str:
        """The cluster IP of the service `kubernetes`."""
        return self.services.replace(".0/24", ".1")

    def node_address(self, index: int) -> str:
        """The address of node `index` (from 1)."""
        return f"10.{self.octet}.0.{_FIRST_NODE + index}"

    def pod_subnet(self, index: int) -> str:
        """The pod subnet of node `index`."""
        return f"10.{self.octet}.{_FIRST_NODE + index}.0/24"

    def cable_name(self, last_octet: int) -> str:
        """The host's end of the cable of the box with this last octet."""
        return f"{self.link}-{last_octet}"

    def last_octet(self, index: int) -> int:
        """The last octet of the address of node `index`."""
        return _FIRST_NODE + index


class _Route(Struct, frozen=True):
    dst: str = "default"


def mac_address(address: str) -> str:
    """A MAC address derived from the IP address, so that ARP entries stay valid after a reboot."""
    return "02:42:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def pick_subnet(taken: Iterable[int]) -> Addresses:
    """The first 10.X.0.0/16 that no route of this machine overlaps and no other cluster has.

    Must be called, and recorded, under the lock of all clusters.
    """
    listed = run(["ip", "-json", "route", "show", "table", "all"], timeout=10).stdout
    in_use = [_parse_network(route.dst) for route in msgspec.json.decode(listed, type=list[_Route])]
    assigned = set(taken)
    for octet in SECOND_OCTETS:
        subnet = ipaddress.ip_network(f"10.{octet}.0.0/16")
        candidate = Addresses(octet=octet)
        if octet in assigned or (Path("/sys/class/net") / candidate.link).exists():
            continue
        if not any(used is not None and subnet.overlaps(used) for used in in_use):
            return candidate
    raise DevClusterError(
        "no free subnet 10.X.0.0/16 between 10.64 and 10.127",
        resolution="End clusters that are no longer needed: `upgrader dev status`, `upgrader dev down NAME`.",
    )


def _parse_network(destination: str) -> ipaddress.IPv4Network | None:
    try:
        network = ipaddress.ip_network(destination)
    except ValueError:
        return None  # default
    return network if isinstance(network, ipaddress.IPv4Network) and network.prefixlen else None


def pick_ports(taken: Iterable[int]) -> Addresses:
    """Free ports on 127.0.0.1 that no other cluster has; must be called under the lock of all clusters."""
    assigned = set(taken)
    ports: list[int] = []
    sockets: list[socket.socket] = []  # kept open until all are chosen, so that no port is chosen twice
    try:
        while len(ports) < len(PORT_FIELDS):
            sockets.append(socket.socket())
            sockets[-1].bind(("127.0.0.1", 0))
            port: int = sockets[-1].getsockname()[1]
            if port not in assigned:
                ports.append(port)
    finally:
        for taken_socket in sockets:
            taken_socket.close()
    return msgspec.convert({"octet": 0, **dict(zip(PORT_FIELDS, ports, strict=True))}, Addresses)


PORT_FIELDS = (
    "api_port",
    "registry_port",
    "etcd_port",
    "etcd_peer_port",
    "controller_manager_port",
    "scheduler_port",
)
