"""Phases of `upgrader first-node` that change something, and the comparison after them."""

import msgspec
import pytest

from tests.unit.cli.first_node.conftest import OUTPUTS, REPORT, first_node, lines, own_pods, read_journal
from upgrader.api import names
from upgrader.api.resources import NODES, PODS
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.node_protocol.recordings import RecordedOutput

OTHER = "other-1"


@pytest.fixture
def bare(node):
    """A node that no stack selects, so that its driver is NVIDIA's. The survey names each holder."""
    info = {"kernelVersion": "6.1.0-47-amd64", "kubeletVersion": "v1.34.4"}
    node.cluster.store.put(NODES, {"metadata": {"name": OTHER}, "spec": {}, "status": {"nodeInfo": info}})
    node.cordons = []

    def name_holders(component):
        assert component == "survey"
        node.cordons.append(cordoned(node))
        advices = [
            Advice(subject=f"pod default/{name}", check="DriverInUse", severity=Severity.PROBLEM, message="holds it")
            for name in holders(node)
        ]
        node.logs["survey"] = lines(msgspec.structs.replace(REPORT, findings=tuple(advices)))

    node.before_end = name_holders
    return node


def holders(rig):
    pods = rig.cluster.store.copy_all(PODS, "default")
    labelled = [pod["metadata"] for pod in pods if pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT)]
    return [meta["name"] for meta in labelled if meta["labels"][names.LABEL_COMPONENT] == "holder"]


def cordoned(rig, name=OTHER):
    return rig.cluster.store.read(NODES, name).get("spec", {}).get("unschedulable", False)


def put_gpu_pod(rig, resource="nvidia.com/gpu", phase="Running", name="train"):
    container = {"name": "c", "image": "a", "resources": {"requests": {resource: "1"}}}
    spec = {"nodeName": OTHER, "containers": [container]}
    rig.cluster.store.put(
        PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": phase}}
    )


def last_run(folder):
    return read_journal(folder).entries[-1]


def test_a_holder_is_named_and_everything_is_put_back(bare, tmp_path):
    ended = first_node(bare, tmp_path, "--go", "9", name=OTHER)
    run = last_run(tmp_path)
    assert (ended.exit_code, run.verdict.value, run.message) == (0, "passed", "the survey names the holder: yes")
    assert bare.cordons == [True]
    assert (cordoned(bare), own_pods(bare), run.left) == (False, [], ())
    assert "holders: named by the survey" in (tmp_path / "measured.csv").read_text()


def test_a_holder_that_is_not_named_is_missed(bare, tmp_path):
    bare.before_end = lambda component: None
    ended = first_node(bare, tmp_path, "--go", "9", name=OTHER)
    assert (ended.exit_code, last_run(tmp_path).verdict.value) == (1, "findings")
    assert "holds /dev/nvidia0,nothing,survey" in (tmp_path / "missed.csv").read_text()
    assert OTHER not in (tmp_path / "missed.csv").read_text()


def test_a_node_without_the_device_is_skipped(bare, tmp_path):
    bare.holder_phase = "Failed"
    ended = first_node(bare, tmp_path, "--go", "9", name=OTHER)
    assert (ended.exit_code, last_run(tmp_path).verdict.value) == (0, "skipped")
    assert (cordoned(bare), own_pods(bare)) == (False, [])


def test_a_cordon_of_a_user_stays(bare, tmp_path):
    bare.cluster.store.change(NODES, OTHER, {"spec": {"unschedulable": True}})
    first_node(bare, tmp_path, "--go", "9", name=OTHER)
    assert (bare.cordons, cordoned(bare)) == ([True], True)


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
def test_a_node_with_gpu_pods_is_refused_and_not_changed(bare, tmp_path, resource):
    put_gpu_pod(bare, resource)
    ended = first_node(bare, tmp_path, "--go", "9", name=OTHER)
    run = last_run(tmp_path)
    assert (ended.exit_code, run.verdict.value, run.left) == (1, "refused", ())
    assert "runs pods with GPUs: default/train" in ended.output
    assert (cordoned(bare), bare.cordons, holders(bare)) == (False, [], [])
    assert read_journal(tmp_path).completed == frozenset()


def test_pods_that_have_ended_and_cpu_pods_do_not_count(bare, tmp_path):
    put_gpu_pod(bare, phase="Succeeded")
    put_gpu_pod(bare, "cpu", name="web")
    assert first_node(bare, tmp_path, "--go", "9", name=OTHER).exit_code == 0


def test_a_gpu_pod_that_arrives_before_the_cordon_is_found_after_it(bare, tmp_path):
    def arrive(write):
        if (write.kind, write.verb) == ("Node", "merge"):
            put_gpu_pod(bare)
            bare.cluster.before_write = None

    bare.cluster.before_write = arrive
    first_node(bare, tmp_path, "--go", "9", name=OTHER)
    assert (last_run(tmp_path).verdict.value, cordoned(bare), holders(bare)) == ("refused", False, [])


def test_another_vendor_is_skipped_without_a_change(node, tmp_path):
    ended = first_node(node, tmp_path, "--go", "9")
    assert (ended.exit_code, last_run(tmp_path).verdict.value) == (0, "skipped")
    assert "no device files of vendor sim" in last_run(tmp_path).message


def with_gpus(rig, count="8"):
    rig.cluster.store.change(NODES, OTHER, {"status": {"allocatable": {"nvidia.com/gpu": count}}})
    rig.requested = []

    def list_devices(component):
        pods = rig.cluster.store.copy_all(PODS)
        (pod,) = [
            pod
            for pod in pods
            if pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == component
            and "deletionTimestamp" not in pod["metadata"]
        ]
        number = int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        rig.requested.append((number, cordoned(rig)))
        files = ["null", "nvidiactl", "nvidia-uvm", "nvidia-caps", *(f"nvidia{at}" for at in range(number))]
        rig.logs["gpus"] = "\n".join(files[: len(files) - rig.lost]).encode()

    rig.lost, rig.logs["gpus"], rig.before_end = 0, b"", list_devices


def test_pods_with_one_and_with_all_gpus_have_their_devices(bare, tmp_path):
    with_gpus(bare)
    ended = first_node(bare, tmp_path, "--go", "7", name=OTHER)
    assert (ended.exit_code, last_run(tmp_path).verdict.value, bare.requested) == (0, "passed", [(1, True), (8, True)])
    assert (cordoned(bare), own_pods(bare), last_run(tmp_path).left) == (False, [], ())


def test_a_pod_with_fewer_devices_than_it_requests_is_missed(bare, tmp_path):
    with_gpus(bare)
    bare.lost = 1
    assert first_node(bare, tmp_path, "--go", "7", name=OTHER).exit_code == 1
    assert (tmp_path / "missed.csv").read_text().splitlines()[1:] == [
        "1 device file(s),0,pod with 1 GPU(s)",
        "8 device file(s),7,pod with 8 GPU(s)",
    ]


@pytest.mark.parametrize("count", ["0", "none", "-1"])
def test_a_node_that_offers_no_gpus_is_skipped_without_a_change(bare, tmp_path, count):
    with_gpus(bare, count)
    assert first_node(bare, tmp_path, "--go", "7", name=OTHER).exit_code == 0
    assert (last_run(tmp_path).verdict.value, bare.requested) == ("skipped", [])


def outputs(modules="nvidia 5 1 - Live\nnvidia_uvm 1 0 - Live\n", **texts):
    found = {
        "modules.txt": modules,
        "removal-order.txt": "nvidia",
        "ib-ports.txt": "mlx5_0 state=ACTIVE on gpu-1",
        "dmesg.txt": "a",
    } | texts
    return lines(OUTPUTS[0], *(RecordedOutput(name=name, source=name, text=text) for name, text in found.items()))


def test_a_comparison_ignores_counters_and_finds_what_is_missing_and_new(node, tmp_path):
    node.logs["record"] = outputs()
    first_node(node, tmp_path)
    node.logs["record"] = outputs("nvidia 9 7 - Live\nnvidia_uvm 4 4 - Live\n", **{"dmesg.txt": "b"})
    assert first_node(node, tmp_path, "--go", "13").exit_code == 0
    node.logs["record"] = outputs("nvidia 5 1 - Live\ngdrdrv 1 0 - Live\n", **{"ib-ports.txt": "mlx5_0 state=DOWN"})
    assert first_node(node, tmp_path, "--go", "13").exit_code == 1
    host = (tmp_path / "02-baseline/ib-ports.txt").read_text().split()[-1]
    assert (tmp_path / "missed.csv").read_text().splitlines() == [
        "expected,found,where",
        f"mlx5_0 state=ACTIVE on {host},nothing,ib-ports.txt",
        "nothing,mlx5_0 state=DOWN,ib-ports.txt",
        "nvidia_uvm,nothing,modules.txt",
        "nothing,gdrdrv,modules.txt",
    ]


def test_a_comparison_without_a_baseline_fails_before_any_pod(node, tmp_path):
    ended = first_node(node, tmp_path, "--go", "13")
    assert (ended.exit_code, "no baseline to compare with" in ended.output) == (1, True)
    assert own_pods(node) == []
