"""What a box is on the cgroups of the machine that this runs on, from its start to its end, as JSON.

`python -m tests.support.box_facts CLUSTER` on a virtual node of that cluster, which has cgroups of version 2 only. The
control plane stays outside, since under emulation an API server takes minutes; all that a box is, is here. What of the
cluster's folder a box needs is in /var/lib/shared/joined. Lines on standard error say when each step was done.
"""

import os
import shutil
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from tests.support.leftovers import CGROUPS, left, machine, running
from tests.support.plain_pods import PODS, PlainPods, until
from upgrader.process import run
from upgrader.process.daemon import is_alive
from upgrader.process.places import state_root
from upgrader.process.waiting import wait_until_true
from upgrader_dev.devcluster import BoxNode, BoxSpec, DevCluster, cgroups, check, delete_cluster
from upgrader_dev.devcluster.base import network, record

JOINED = Path("/var/lib/shared/joined")
NODE = "gpu-a"
MEMORY = 48 * 1024**2
LIMITS = {"resources": {"limits": {"memory": str(MEMORY), "cpu": "250m"}}}
SECONDS = 400.0
"""For one step, under emulation and beside other work."""
_TELLS = "/bin/busybox cat /sys/fs/cgroup/memory.max /proc/self/cgroup; exec /bin/busybox sleep 1000000"
_TAKES_MORE = f"exec /bin/busybox dd if=/dev/zero of=/dev/null count=1 bs={4 * MEMORY}"

Facts = dict[str, Any]


class Clock:
    """Says lines with the seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self._started:6.1f} s  {line}\n")


def story(name: str, mark: str, say: Clock) -> Facts:
    """All of it, from nothing to nothing."""
    check.require_host(namespaces=True, boxes=True)
    facts: Facts = {"said": cgroups.require_support().reason}
    before = machine()
    folder = state_root() / name
    shutil.copytree(JOINED, folder)
    try:
        cluster = DevCluster(folder)
        _bridge(record.read_record(folder))
        node, pods = cluster.add_box(BoxSpec(name=NODE), say), PlainPods(cluster)
        node.wait_ready(SECONDS)
        say("Ready")
        for step in (_own, _limits, _hang, _power):
            facts[step.__name__.lstrip("_")] = step(cluster, node, pods)
            say(step.__name__)
        cluster.close()
        seen = running(mark)
    finally:
        delete_cluster(name)
    say("down")
    wait_until_true(lambda: not left(before, seen, mark), seconds=SECONDS, every=0.5)
    facts["left"] = {kind: str(what) for kind, what in left(before, seen, mark).items()}
    return facts


def _bridge(found: record.ClusterRecord) -> None:
    """A bridge that boxes are plugged into, as on every host of boxes; this machine's own cable is in it, too."""
    link, card = found.addresses.link, Path("/sys/class/net/eth0/address").read_text().strip()
    own = network.interface_commands(found.addresses, found.addresses.last_octet(found.vms[0].index)).splitlines()
    lines = [
        f"link add {link} address {card} type bridge",
        f"link set {link} alias upgrader:{found.token}",
        f"link set {link} up",
        "addr flush dev eth0",
        f"link set eth0 master {link}",
        *(line.replace("dev eth0", f"dev {link}") for line in own),
    ]
    run(["ip", "-batch", "-"], stdin="\n".join(lines).encode(), timeout=SECONDS)


def _own(cluster: DevCluster, node: BoxNode, _pods: PlainPods) -> Facts:
    """What the box takes for the root of all cgroups, seen from inside and from the machine."""
    mounts = [line.split() for line in node.enter("cat", "/proc/mounts").text.splitlines()]
    return {
        "process 1": node.enter("cat", "/proc/1/cgroup").text,
        "mounted": [(words[1], words[2]) for words in mounts if words[1].startswith("/sys/fs/cgroup")],
        "given below": node.enter("cat", "/sys/fs/cgroup/cgroup.subtree_control").text.split(),
        "processes beside": (_folder(cluster) / "cgroup.procs").read_text(),
        "below": sorted(path.name for path in _folder(cluster).iterdir() if path.is_dir()),
    }


def _limits(cluster: DevCluster, _node: BoxNode, pods: PlainPods) -> Facts:
    """A pod's limits: on the machine, inside the pod, and when it takes more."""
    uid = pods.start("limited", NODE, _TELLS, container=LIMITS)["metadata"]["uid"]
    folder = next(path for path in (_folder(cluster) / "kubepods").rglob(f"pod{uid}") if path.is_dir())
    pods.start("greedy", NODE, _TAKES_MORE, container=LIMITS)
    greedy = until(lambda: pods.get("greedy"), lambda pod: pod["status"]["phase"] == "Failed", SECONDS)
    ended = greedy["status"]["containerStatuses"][0]["state"]["terminated"]
    return {
        "pod": [(folder / name).read_text().strip() for name in ("memory.max", "cpu.max")],
        "inside": until(lambda: cluster.api.read_text(f"{PODS}/limited/log"), seconds=SECONDS).split(),
        "took more": (ended["reason"], ended["exitCode"]),
    }


def _hang(_cluster: DevCluster, node: BoxNode, pods: PlainPods) -> Facts:
    before = node.wait_ready(SECONDS)
    node.pause()
    meanwhile = node.wait_not_ready(SECONDS).ready
    node.resume()
    after = node.wait_ready(SECONDS)
    return {"meanwhile": meanwhile, "boots": len({before.boot_id, after.boot_id}), "restarts": pods.restarts("limited")}


def _power(cluster: DevCluster, node: BoxNode, pods: PlainPods) -> Facts:
    """The power goes while it hangs, and comes back."""
    folder, mounts, boot = _folder(cluster), machine().mounts, node.wait_ready(SECONDS).boot_id
    pids = {int(pid) for procs in folder.rglob("cgroup.procs") for pid in procs.read_text().split()}
    node.pause()
    node.power_off()
    off = {
        "cgroups": [path for path, _, _ in os.walk(CGROUPS) if folder.name in path],
        "mounts": sorted(machine().mounts - mounts),
        "processes": sorted(pid for pid in pids if is_alive(pid)),
    }
    node.power_on()
    again = node.wait_ready(SECONDS)
    until(lambda: pods.restarts("limited") >= 0, seconds=SECONDS)
    return {"had processes": len(pids) > 3, **off, "boots anew": again.boot_id != boot}


def _folder(cluster: DevCluster) -> Path:
    return CGROUPS / f"{cluster.addresses.link}-{NODE}"


if __name__ == "__main__":
    os.environ["UPGRADER_TEST_MARK"] = inherited = uuid.uuid4().hex
    sys.stdout.write(msgspec.json.encode(story(sys.argv[1], inherited, Clock())).decode())
