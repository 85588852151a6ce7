"""What is real in a box: pods that see their node, each other and the API server; a kubelet swapped under them."""

import msgspec
import pytest
import tenacity

from tests.support import diagnosis
from upgrader.devcluster import kubelet
from upgrader.process import ProgramFailedError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PODS = "/api/v1/namespaces/default/pods"
BUSYBOX = ["/bin/busybox", "sh", "-c"]


@pytest.fixture
def run_pod(dev_cluster):
    """Run a shell line in a pod on a node; gives the Pod object once it runs or has ended."""
    made = []

    def start(name, node, line, **spec):
        container = {"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never", "command": [*BUSYBOX, line]}
        container |= spec.pop("container", {})
        wanted = {"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec}
        made.append(name)
        dev_cluster.api.create(PODS, {"metadata": {"name": name}, "spec": {**wanted, "containers": [container]}})
        return until(
            lambda: pod_of(dev_cluster, name), lambda pod: pod["status"]["phase"] not in {"Pending", "Unknown"}
        )

    yield start
    for name in made:
        dev_cluster.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def test_pods_reach_each_other_and_the_api_server(dev_cluster, run_pod):
    server = run_pod("server", "gpu-b", "/bin/busybox nc -l -p 8080 -e /bin/busybox echo hello from b")
    address = server["status"]["podIP"]
    service = dev_cluster.addresses.kubernetes_service

    run_pod(
        "asks",
        "gpu-a",
        f"/bin/busybox nc -w 5 {address} 8080 </dev/null; /bin/busybox nc -w 5 {service} 443 </dev/null && echo open",
    )

    assert ended_with(dev_cluster, "asks") == (0, "hello from b\nopen\n")


def test_registry_answers_host_and_box(dev_cluster):
    said = dev_cluster.box_node("gpu-a").enter("busybox", "wget", "-qO-", f"http://{dev_cluster.registry}/v2/")

    assert said.text == "{}"


def test_a_privileged_pod_sees_its_node_and_no_other(dev_cluster, run_pod):
    run_pod(
        "sees",
        "gpu-a",
        "/bin/busybox pidof kubelet | /bin/busybox wc -w; /bin/busybox hostname; /bin/busybox ls /host-bin",
        hostPID=True,
        hostNetwork=True,
        container={
            "securityContext": {"privileged": True},
            "volumeMounts": [{"name": "bin", "mountPath": "/host-bin"}],
        },
        volumes=[{"name": "bin", "hostPath": {"path": "/var/lib/box/bin", "type": "Directory"}}],
    )

    assert ended_with(dev_cluster, "sees") == (0, "1\ngpu-a\nkubelet\n")


def test_all_boxes_share_one_directory(dev_cluster, run_pod):
    mounted = {
        "container": {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
        "volumes": [{"name": "shared", "hostPath": {"path": "/var/lib/shared"}}],
    }
    run_pod("writes", "gpu-a", "echo kept > /shared/note", **mounted)
    assert ended_with(dev_cluster, "writes")[0] == 0

    run_pod("reads", "gpu-b", "/bin/busybox cat /shared/note", **mounted)

    assert ended_with(dev_cluster, "reads") == (0, "kept\n")
    assert (dev_cluster.shared / "note").read_text() == "kept\n"


def test_a_kubelet_is_swapped_and_back_under_a_running_pod(dev_cluster, run_pod):
    node = dev_cluster.box_node("gpu-a")
    before = run_pod("stays", "gpu-a", "/bin/busybox sleep 1000")["status"]["containerStatuses"]

    for version in ("1.35.4", "1.34.4"):
        node.replace_kubelet(kubelet(version, print))
        state = until(node.wait_ready, lambda state, version=version: state.kubelet == f"v{version}")
        assert state.ready == "True"

    after = pod_of(dev_cluster, "stays")["status"]["containerStatuses"]
    assert [(each["containerID"], each["restartCount"]) for each in after] == [
        (each["containerID"], each["restartCount"]) for each in before
    ]


def test_a_kernel_name_shows_in_the_box_and_in_its_node_from_the_first_look(dev_cluster):
    node = dev_cluster.box_node("gpu-b")
    seen = []
    node.set_kernel("6.1.0-51-amd64")
    node.power_off()
    old = node.state().boot_id
    node.power_on()

    until(lambda: seen.append(node.state()) or seen[-1], lambda state: state.ready == "True" and state.boot_id != old)

    assert {state.kernel for state in seen if state.boot_id != old} == {"6.1.0-51-amd64"}
    assert node.enter("cat", "/proc/sys/kernel/osrelease").text == "6.1.0-51-amd64"
    node.set_kernel("")
    node.power_off()
    node.power_on()
    assert node.wait_ready().kernel == node.enter("uname", "-r").text


def test_a_kubelet_keeps_its_images_however_full_the_machines_disk_is(dev_cluster):
    told = dev_cluster.api.get("/api/v1/nodes/gpu-a/proxy/configz")["kubeletconfig"]

    assert told["imageGCHighThresholdPercent"] == 100


def test_a_hung_kubelet_is_silent_until_it_goes_on(dev_cluster):
    node = dev_cluster.box_node("gpu-a")
    before = node.wait_ready()

    node.pause("kubelet")
    node.wait_not_ready()
    node.resume("kubelet")

    assert node.wait_ready().boot_id == before.boot_id


def test_a_failed_test_is_told_which_pods_are_not_well_and_what_their_node_does(dev_cluster, run_pod):
    run_pod("fails", "gpu-a", "exit 3")

    said = diagnosis.report(dev_cluster)

    assert "default/fails on gpu-a: Failed" in said
    assert "'exitCode': 3" in said
    assert "--- gpu-a: processes" in said
    assert "containerd -c /var/lib/box/" in said
    assert "--- gpu-b: processes" not in said


def test_an_error_inside_says_what_and_where(dev_cluster):
    with pytest.raises(ProgramFailedError, match="ended with 3"):
        dev_cluster.box_node("gpu-a").enter("sh", "-c", "exit 3")


def test_the_api_server_can_be_paused_and_ended(dev_cluster):
    dev_cluster.pause_api_server()
    paused = dev_cluster.api.ready(seconds=1)
    dev_cluster.resume_api_server()
    until(lambda: dev_cluster.api.ready(seconds=5))
    dev_cluster.stop_api_server()
    stopped = dev_cluster.api.ready(seconds=5)
    dev_cluster.start_api_server()

    assert (paused, stopped) == (False, False)
    assert {state.ready for state in dev_cluster.wait_ready().values()} == {"True"}


def test_the_audit_log_has_the_writes_of_a_user_and_no_reads(dev_cluster):
    user = "devcluster:tester"
    kubeconfig = dev_cluster.credentials(user, ["system:masters"])
    api = dev_cluster.as_user(user)
    maps = "/api/v1/namespaces/default/configmaps"
    api.create(maps, {"metadata": {"name": "audited"}})
    api.patch(f"{maps}/audited", {"data": {"a": "b"}})
    api.get(f"{maps}/audited")
    api.delete(f"{maps}/audited")
    api.close()

    lines = [msgspec.json.decode(line) for line in dev_cluster.audit_log.read_bytes().splitlines()]

    assert kubeconfig.exists()
    assert [line["verb"] for line in lines if line["user"]["username"] == user] == ["create", "patch", "delete"]
    assert not {line["verb"] for line in lines} & {"get", "list", "watch"}


def pod_of(cluster, name):
    return cluster.api.get(f"{PODS}/{name}")


def ended_with(cluster, name):
    """Exit code and output of a pod that runs to its end."""
    pod = until(lambda: pod_of(cluster, name), lambda pod: pod["status"]["phase"] in {"Succeeded", "Failed"})
    code = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    return code, cluster.api.text(f"{PODS}/{name}/log")


def until(look, wanted=bool, seconds=60):
    retry = tenacity.retry_if_result(lambda found: not found or not wanted(found))
    return tenacity.Retrying(retry=retry, wait=tenacity.wait_fixed(0.05), stop=tenacity.stop_after_delay(seconds))(look)
