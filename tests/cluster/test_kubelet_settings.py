"""Settings of a real kubelet on a box, changed and taken back by an upgrade; a Guaranteed pod then has its own CPUs."""

import json

import pytest

from tests.support.programs import soon
from upgrader.core.node_protocol.orders import Reason

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PODS = "/api/v1/namespaces/default/pods"
STATE = "/var/lib/kubelet/cpu_manager_state"
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "best-effort"}


@pytest.fixture
def bench(installed):
    """The box without its operands; a test ends with the settings that it had before."""
    installed.off()
    return installed


def well(answer):
    code, result = answer
    assert (code, result.reason) == (0, Reason.DONE), result
    return result


def state_file(bench):
    return json.loads(bench.node.enter("cat", STATE).stdout)


def cpus(bench, name, **resources):
    """CPUs that a pod's process may run on, once it runs."""
    container = {"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never", "resources": resources}
    container |= {"command": ["/bin/busybox", "sleep", "1000"]}
    spec = {"nodeName": bench.node.name, "terminationGracePeriodSeconds": 1, "containers": [container]}
    bench.api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    pod = soon(lambda: (seen := bench.api.get(f"{PODS}/{name}"))["status"]["phase"] != "Pending" and seen, 60)
    assert pod["status"]["phase"] == "Running", pod["status"]

    identity = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    found = bench.node.enter("sh", "-c", 'grep -ls "$0" /proc/[0-9]*/cgroup', identity).text.split()
    status = bench.node.enter("cat", found[0].replace("/cgroup", "/status")).text
    return next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))


def test_a_node_upgrade_gives_guaranteed_pods_cpus_of_their_own_and_takes_that_back(bench):
    whole = {"limits": {"cpu": "1", "memory": "32Mi"}}
    before = cpus(bench, "shared", **whole)
    bench.api.delete(f"{PODS}/shared?gracePeriodSeconds=0")
    assert state_file(bench)["policyName"] == "none"
    upgrade = bench.upgrade(
        bench.state("1.0.0", "1.34.4"), bench.state("1.0.0", "1.34.4") | {"kubeletSettings": STATIC}
    )
    assert well(bench.prepare(upgrade)).facts["kubelet settings"].startswith("cpuManagerPolicy static")

    upgraded = well(bench.run_upgrade(upgrade))
    assert "the kubelet runs with cpuManagerPolicy static" in upgraded.message
    assert state_file(bench)["policyName"] == "static"
    try:
        own = cpus(bench, "exclusive", **whole)
        assert own.isdecimal()
        assert own != "0"
        assert own not in cpus(bench, "others").split(",")
        assert state_file(bench)["entries"]
    finally:
        for name in ("exclusive", "others"):
            bench.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
        soon(lambda: not any(bench.api.get(f"{PODS}/{name}") for name in ("exclusive", "others")), 60)
        well(bench.run_upgrade(upgrade, reverting=True))
    assert state_file(bench)["policyName"] == "none"
    assert cpus(bench, "again", **whole) == before
    bench.api.delete(f"{PODS}/again?gracePeriodSeconds=0")


def test_settings_that_the_kubelet_does_not_start_with_are_taken_back_by_the_upgrade_itself(bench):
    # One policy alone is not: the kubelet wants CPUs that are kept for the system. The stack's rule asks for them.
    wrong = bench.state("1.0.0", "1.34.4") | {"kubeletSettings": {"cpuManagerPolicy": "static"}}
    upgrade = bench.upgrade(bench.state("1.0.0", "1.34.4"), wrong)
    code, result = bench.run_upgrade(upgrade, patience=20)
    assert (code, result.reason) == (16, Reason.KUBELET_RESTORED), result
    assert "The previous settings were restored; the kubelet runs" in result.message
    assert state_file(bench)["policyName"] == "none"
    bench.node.wait_ready()


def test_cpus_that_the_node_does_not_have_are_refused_while_preparing(bench):
    wrong = bench.state("1.0.0", "1.34.4") | {"kubeletSettings": STATIC | {"reservedSystemCPUs": "0,999"}}
    code, result = bench.prepare(bench.upgrade(bench.state("1.0.0", "1.34.4"), wrong))
    assert (code, result.reason) == (14, Reason.MISSING)
    assert "reservedCpus 0,999 contains CPU 999" in result.message
