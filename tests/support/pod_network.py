"""What a pod on a box of the embedded cluster reaches, seen from its own network namespace."""

import ipaddress
import json

from upgrader.process import run
from upgrader_dev.devcluster import DevCluster
from upgrader_dev.devcluster.box.box_node import BoxNode

NOBODY = "192.0.2.1"
"""Of TEST-NET-1 (RFC 5737), as an address that only the way out leads to."""

REACHED, SILENT = "answers", "nothing"

_CONNECT = """
import errno, json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def ask(name):
    host, _, port = name.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
        return "answers"
    except TimeoutError:
        return "nothing"
    except OSError as error:
        return "nothing" if error.errno == errno.ENETUNREACH else repr(error)
with ThreadPoolExecutor(16) as threads:
    print(json.dumps(dict(zip(sys.argv[1:], threads.map(ask, sys.argv[1:])))))
"""
"""A kernel says only so often to one sender that there is no way: then a connection ends with its time-out."""


def processes(node: BoxNode, uid: str) -> list[int]:
    """Pids, as the box has them, of a pod's processes; the sandbox's own is among them."""
    found = node.enter("sh", "-c", 'grep -ls "pod$0" /proc/[0-9]*/cgroup || true', uid).text
    return sorted(int(line.split("/")[2]) for line in found.split())


def connects(node: BoxNode, uid: str, *addresses: str) -> dict[str, str]:
    """Of each `host:port`: REACHED, SILENT, or the error of whoever was reached and refused."""
    into = ("nsenter", f"--target={processes(node, uid)[0]}", "--net")
    found: dict[str, str] = json.loads(node.enter(*into, "python3", "-I", "-c", _CONNECT, *addresses).text)
    return found


def environment(node: BoxNode, uid: str, word: str) -> set[str]:
    """Names of the variables of the pod's first process with this word on its command line."""
    for pid in processes(node, uid):
        words, variables = (
            node.enter("cat", f"/proc/{pid}/{file}", check=False).stdout.decode().split("\0")
            for file in ("cmdline", "environ")
        )
        if word in words:
            return {one.partition("=")[0] for one in variables if one}
    raise AssertionError(f"no process of {uid} has the word {word}")


def strange_routes(cluster: DevCluster, node: BoxNode) -> list[str]:
    """Where the box, which pods go out by, has a route to that does not lie in the cluster's own addresses."""
    own = ipaddress.ip_network(f"10.{cluster.addresses.octet}.0.0/16")
    fourth, sixth = (_destinations(node.enter("ip", family, "-json", "route").text) for family in ("-4", "-6"))
    strange = [one for one in fourth if one == "default" or not ipaddress.ip_network(one).subnet_of(own)]
    return strange + [one for one in sixth if one == "default" or not ipaddress.ip_network(one).is_link_local]


def addresses_elsewhere(cluster: DevCluster) -> list[str]:
    """Addresses of this machine that are not in the cluster; loopback is not among them. Something is behind each."""
    own = ipaddress.ip_network(f"10.{cluster.addresses.octet}.0.0/16")
    listed = json.loads(run(["ip", "-4", "-json", "address", "show", "scope", "global"], timeout=10).text)
    found = {one["local"] for link in listed for one in link.get("addr_info", ())}
    return sorted(one for one in found if ipaddress.ip_address(one) not in own)


def _destinations(listed: str) -> list[str]:
    return [one["dst"] for one in json.loads(listed or "[]")]
