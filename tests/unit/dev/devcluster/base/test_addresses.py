import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.base.addresses import (
    PORT_FIELDS,
    SECOND_OCTETS,
    Addresses,
    mac_address,
    pick_ports,
    pick_subnet,
)
from upgrader_dev.devcluster.base.network import CONTROL_PLANE_LAST, interface_commands
from upgrader_dev.devcluster.base.spec import MOST_BOXES

octets = st.sampled_from(SECOND_OCTETS)
indexes = st.integers(1, MOST_BOXES)


def test_a_cluster_has_one_subnet_of_its_own():
    addresses = Addresses(octet=70)

    assert (addresses.host, addresses.control_plane, addresses.node_address(1)) == (
        "10.70.0.1",
        "10.70.0.2",
        "10.70.0.11",
    )
    assert (addresses.server, addresses.registry) == ("https://10.70.0.2:443", "10.70.0.2:5000")
    assert (addresses.services, addresses.kubernetes_service) == ("10.70.1.0/24", "10.70.1.1")
    assert (addresses.pod_subnet(1), addresses.link, addresses.cable_name(11)) == ("10.70.11.0/24", "upg70", "upg70-11")


def test_without_namespaces_all_is_on_the_loopback():
    addresses = Addresses(octet=0, api_port=6443, registry_port=5001)

    assert (addresses.server, addresses.registry) == ("https://127.0.0.1:6443", "127.0.0.1:5001")


@given(octets, st.lists(indexes, min_size=2, max_size=2, unique=True))
def test_no_two_subnets_of_a_cluster_overlap(octet, pair):
    addresses = Addresses(octet=octet)
    subnets = [f"{addresses.host}/24", addresses.services, *(addresses.pod_subnet(index) for index in pair)]
    networks = [ipaddress.ip_network(subnet, strict=False) for subnet in subnets]

    assert not any(a.overlaps(b) for at, a in enumerate(networks) for b in networks[at + 1 :])
    assert all(network.subnet_of(ipaddress.ip_network(f"10.{octet}.0.0/16")) for network in networks)


@given(octets, indexes)
def test_names_of_links_fit_the_kernel(octet, index):
    addresses = Addresses(octet=octet)

    assert len(addresses.cable_name(addresses.last_octet(index))) <= 15


@given(octets, indexes)
def test_an_address_has_one_mac_address(octet, index):
    address = Addresses(octet=octet).node_address(index)

    assert [int(part, 16) for part in mac_address(address).split(":")[2:]] == [int(part) for part in address.split(".")]


def test_podmans_subnet_is_never_taken():
    taken = [octet for octet in SECOND_OCTETS if octet < 88]

    assert pick_subnet(taken).octet > 88


def test_taken_subnets_are_passed_over():
    first = pick_subnet([])
    second = pick_subnet([first.octet])

    assert first.octet < second.octet


def test_no_subnet_left_says_what_to_do():
    with pytest.raises(DevClusterError) as raised:
        pick_subnet(SECOND_OCTETS)

    assert "upgrader dev down" in raised.value.resolution


def test_ports_are_free_and_different():
    addresses = pick_ports([])
    ports = [getattr(addresses, field) for field in PORT_FIELDS]

    assert len(set(ports)) == len(PORT_FIELDS)
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_a_node_knows_the_way_to_all_others_but_not_to_itself():
    addresses = Addresses(octet=70)
    lines = interface_commands(addresses, addresses.last_octet(3)).splitlines()

    assert lines[:4] == [
        "link set lo up",
        "addr add 10.70.0.13/24 dev eth0",
        "link set eth0 up",
        "route add 10.70.1.0/24 via 10.70.0.2",
    ]
    assert "route add 10.70.12.0/24 via 10.70.0.12" in lines
    assert not any("10.70.13.0/24" in line for line in lines)
    assert len(lines) == 4 + MOST_BOXES - 1


def test_the_control_plane_has_the_address_of_the_kubernetes_service():
    lines = interface_commands(Addresses(octet=70), CONTROL_PLANE_LAST).splitlines()

    assert "addr add 10.70.1.1/32 dev lo" in lines
    assert len([line for line in lines if line.startswith("route")]) == MOST_BOXES
