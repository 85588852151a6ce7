"""What every sort of node does: kwok nodes and boxes pass the same tests."""

import pytest
import tenacity

from upgrader_dev.devcluster.base.nodes import DevNode

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

POD = {
    "metadata": {"name": "stays"},
    "spec": {
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never"}],
    },
}
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(params=["box", "kwok"])
def node(request, dev_cluster) -> DevNode:
    found = next(node for node in dev_cluster.nodes.values() if node.sort == request.param)
    found.wait_ready()
    yield found
    found.set_kernel("")
    found.power_off()
    found.power_on()
    found.join()
    found.wait_ready()


@pytest.fixture
def pod(dev_cluster, node):
    """A running pod on the node."""
    dev_cluster.api.create(PODS, {**POD, "spec": {**POD["spec"], "nodeName": node.name}})
    _until(lambda: _phase(dev_cluster) == "Running")
    yield dev_cluster.api.get(f"{PODS}/stays")
    dev_cluster.api.delete(f"{PODS}/stays?gracePeriodSeconds=0")
    _until(lambda: dev_cluster.api.get(f"{PODS}/stays") is None)


def test_reports_its_versions(node):
    state = node.wait_ready()

    assert (state.ready, state.kubelet) == ("True", "v1.34.4")
    assert state.kernel
    assert state.boot_id
    assert int(state.allocatable["pods"]) == 110


def test_silent_without_power_and_reboots_with_a_new_boot_id(node):
    before = node.wait_ready()

    node.power_off()
    off = node.wait_not_ready()
    node.power_on()
    after = node.wait_ready()

    assert off.boot_id == before.boot_id
    assert after.boot_id != before.boot_id
    assert after.kernel == before.kernel


def test_cut_off_and_joined_is_the_same_boot(node, pod, dev_cluster):
    before = node.wait_ready()

    node.cut()
    cut = node.wait_not_ready()
    node.join()
    after = node.wait_ready()

    assert cut.ready == "Unknown"
    assert after.boot_id == before.boot_id
    assert dev_cluster.api.get(f"{PODS}/stays")["metadata"]["uid"] == pod["metadata"]["uid"]


def test_another_kernel_name_takes_effect_at_power_on(node):
    before = node.wait_ready()

    node.set_kernel("6.1.0-50-amd64")
    assert node.wait_ready().kernel == before.kernel
    node.power_off()
    node.power_on()

    assert node.wait_ready().kernel == "6.1.0-50-amd64"


def test_pods_of_a_dead_node_stay_in_the_api(node, pod, dev_cluster):
    node.power_off()
    node.wait_not_ready()

    assert dev_cluster.api.get(f"{PODS}/stays")["metadata"]["uid"] == pod["metadata"]["uid"]
    node.power_on()
    node.wait_ready()


def test_a_deleted_node_comes_back_at_power_on(node, dev_cluster):
    uid = dev_cluster.api.get(f"/api/v1/nodes/{node.name}")["metadata"]["uid"]

    node.power_off()
    dev_cluster.api.delete(f"/api/v1/nodes/{node.name}")
    node.power_on()
    node.wait_ready()

    assert dev_cluster.api.get(f"/api/v1/nodes/{node.name}")["metadata"]["uid"] != uid


def test_a_pod_of_a_job_runs_until_it_is_deleted(node, dev_cluster):
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {**POD["spec"], "nodeName": node.name, "restartPolicy": "Never"}}
    dev_cluster.api.create(jobs, {"metadata": {"name": "trains"}, "spec": {"template": template}})

    def status():
        return (dev_cluster.api.get(f"{jobs}/trains") or {}).get("status", {})

    _until(lambda: status().get("ready") == 1)

    for _ in range(2):
        beat = _heartbeat(dev_cluster, node)
        _until(lambda beat=beat: _heartbeat(dev_cluster, node) != beat)

    assert (status().get("active"), status().get("succeeded")) == (1, None)
    dev_cluster.api.delete(f"{jobs}/trains?propagationPolicy=Foreground")
    _until(lambda: not status())


def _heartbeat(cluster, node):
    return cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}")["spec"]


def _phase(cluster):
    found = cluster.api.get(f"{PODS}/stays")
    return found["status"]["phase"] if found else None


def _until(condition, seconds=30):
    waiting = tenacity.wait_fixed(0.1)
    retry = tenacity.retry_if_result(lambda held: not held)
    tenacity.Retrying(retry=retry, wait=waiting, stop=tenacity.stop_after_delay(seconds))(condition)
