"""Box nodes on a machine that has cgroups of version 2 only: a virtual one, whose boxes join the cluster that it is in.

Its network card and its boxes are on one bridge inside it, so that a box is one more host of the cluster's network.
"""

import shutil
import sys

import msgspec
import pytest

from tests.support import box_facts, carried
from upgrader_dev.devcluster import VmSpec
from upgrader_dev.devcluster.base import record
from upgrader_dev.devcluster.cgroups.choice import REQUIRED

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200)]

STORY_SECONDS = 900.0
"""Under emulation, and beside other work."""

# As Debian leaves a machine at boot: no cgroups but systemd's own, without controllers. The node's own kubelet and
# containerd end here, since what they have made would hide what a box does not make.
BARE = """
sed -i '/kubelet\\|containerd\\|images/d' /etc/inittab
kill -HUP 1
killall kubelet containerd images
for each in $(find /sys/fs/cgroup -mindepth 1 -type d | sort -r); do until rmdir $each; do sleep 0.2; done; done
sed 's/[a-z][a-z]*/-&/g' /sys/fs/cgroup/cgroup.subtree_control >/sys/fs/cgroup/cgroup.subtree_control
cat /sys/fs/cgroup/cgroup.subtree_control
"""


@pytest.fixture(scope="module")
def host(start_cluster):
    """The machine, with the product and all that it needs on it."""
    vm = VmSpec(name="vm-a")
    cluster = start_cluster("unified", boxes=0, vms=(vm,), vm_packages=carried.PACKAGES)
    node = cluster.virtual_node(vm.name)
    carried.bring(node, cluster.shared)
    joined = cluster.shared / box_facts.JOINED.name
    shutil.copytree(cluster.pki.ca.parent, joined / "pki")
    for name in (record.FILE, "pause.tar"):
        shutil.copy(cluster.folder / name, joined)
    assert node.enter("sh", "-c", BARE, seconds=120).text == ""
    yield cluster, node
    node.power_off()


@pytest.fixture(scope="module")
def facts(host):
    """What a box was there."""
    cluster, node = host
    ended = carried.run(node, "-m", "tests.support.box_facts", cluster.name, seconds=STORY_SECONDS)
    sys.stderr.write((cluster.shared / carried.SAID).read_text())
    assert ended.code == 0
    return msgspec.json.decode(ended.stdout)


def test_what_a_kubelet_needs_is_switched_on_and_said(facts):
    assert facts["said"].startswith("cgroup v2: /sys/fs/cgroup is the unified hierarchy; cpu, cpuset, memory, pids")


def test_a_box_takes_its_own_cgroup_for_the_root_and_keeps_no_process_in_it(facts):
    assert facts["own"] | {"given below": set(facts["own"]["given below"]) >= set(REQUIRED)} == {
        "process 1": "0::/init",
        "mounted": [["/sys/fs/cgroup", "cgroup2"]],
        "given below": True,
        "processes beside": "",
        "below": ["init", "kubepods"],
    }


def test_a_pods_limits_are_the_kernels(facts):
    assert facts["limits"] == {
        "pod": [str(box_facts.MEMORY), "25000 100000"],
        "inside": [str(box_facts.MEMORY), "0::/"],
        "took more": ["OOMKilled", 137],
    }


def test_a_box_that_hangs_is_silent_and_goes_on_as_it_was(facts):
    assert facts["hang"] == {"meanwhile": "Unknown", "boots": 1, "restarts": 0}


def test_a_hung_box_loses_its_power_whole_and_boots_again(facts):
    assert facts["power"] == {
        "had processes": True,
        "cgroups": [],
        "mounts": [],
        "processes": [],
        "boots anew": True,
    }


def test_the_end_of_its_cluster_leaves_nothing(facts):
    assert facts["left"] == {}
