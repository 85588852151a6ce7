"""What is real in a box: pods that see their node, each other and the API server; a kubelet swapped under them."""

import msgspec
import pytest

from tests.support import diagnosis
from tests.support.plain_pods import PlainPods, until
from upgrader.process import ProgramFailedError
from upgrader_dev.devcluster import kubelet_program

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def pods(dev_cluster):
    made = PlainPods(dev_cluster)
    yield made
    made.delete_all()


def test_pods_reach_each_other_and_the_api_server(dev_cluster, pods):
    server = pods.start("server", "gpu-b", "/bin/busybox nc -l -p 8080 -e /bin/busybox echo hello from b")
    address = server["status"]["podIP"]
    service = dev_cluster.addresses.kubernetes_service

    pods.start(
        "asks",
        "gpu-a",
        f"/bin/busybox nc -w 5 {address} 8080 </dev/null; /bin/busybox nc -w 5 {service} 443 </dev/null && echo open",
    )

    assert pods.ended("asks") == (0, "hello from b\nopen\n")


def test_registry_answers_host_and_box(dev_cluster):
    said = dev_cluster.box_node("gpu-a").enter("busybox", "wget", "-qO-", f"http://{dev_cluster.registry}/v2/")

    assert said.text == "{}"


def test_a_privileged_pod_sees_its_node_and_no_other(dev_cluster, pods):
    pods.start(
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

    assert pods.ended("sees") == (0, "1\ngpu-a\nkubelet\n")


def test_all_boxes_share_one_directory(dev_cluster, pods):
    mounted = {
        "container": {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
        "volumes": [{"name": "shared", "hostPath": {"path": "/var/lib/shared"}}],
    }
    pods.start("writes", "gpu-a", "echo kept > /shared/note", **mounted)
    assert pods.ended("writes")[0] == 0

    pods.start("reads", "gpu-b", "/bin/busybox cat /shared/note", **mounted)

    assert pods.ended("reads") == (0, "kept\n")
    assert (dev_cluster.shared / "note").read_text() == "kept\n"


def test_a_kubelet_is_swapped_and_back_under_a_running_pod(dev_cluster, pods):
    node = dev_cluster.box_node("gpu-a")
    before = pods.start("stays", "gpu-a", "/bin/busybox sleep 1000")["status"]["containerStatuses"]

    for version in ("1.35.4", "1.34.4"):
        node.replace_kubelet(kubelet_program(version, print))
        state = until(node.wait_ready, lambda state, version=version: state.kubelet == f"v{version}")
        assert state.ready == "True"

    after = pods.get("stays")["status"]["containerStatuses"]
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


@pytest.mark.parametrize("program", ["kubelet", ""])
def test_a_kubelet_that_hangs_alone_or_with_all_its_node_is_silent_until_it_goes_on(dev_cluster, program):
    node = dev_cluster.box_node("gpu-a")
    before = node.wait_ready()

    node.pause(program)
    node.wait_not_ready()
    node.resume(program)

    assert node.wait_ready().boot_id == before.boot_id


def test_a_failed_test_is_told_which_pods_are_not_well_and_what_their_node_does(dev_cluster, pods):
    pods.start("fails", "gpu-a", "exit 3")
    assert pods.ended("fails")[0] == 3

    said = diagnosis.report(dev_cluster)

    assert "default/fails on gpu-a: Failed" in said
    assert "'exitCode': 3" in said
    assert "--- gpu-a: processes" in said
    assert "containerd -c /var/lib/box/" in said
    assert "--- gpu-b: processes" not in said


def test_an_error_inside_says_what_and_where(dev_cluster):
    with pytest.raises(ProgramFailedError, match="ended with exit code 3"):
        dev_cluster.box_node("gpu-a").enter("sh", "-c", "exit 3")


def test_the_api_server_can_be_paused_and_ended(dev_cluster):
    dev_cluster.pause_api_server()
    paused = dev_cluster.api.is_ready(seconds=1)
    dev_cluster.resume_api_server()
    until(lambda: dev_cluster.api.is_ready(seconds=5))
    dev_cluster.stop_api_server()
    stopped = dev_cluster.api.is_ready(seconds=5)
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
