"""`upgrader first-node` on a box: real kubelet, API server and container runtime; devices are simulated."""

import asyncio
import csv
import json

import pytest
from click.testing import CliRunner

from tests.support.programs import soon
from upgrader.api import names
from upgrader.cli.base.session import Session
from upgrader.cli.main import program
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

OWN_PODS = f"labelSelector={names.LABEL_COMPONENT}+in+(survey,record,holder,gpus)"


@pytest.fixture
def bench(installed):
    """The box with the kinds, which the command reads."""

    async def install():
        async with await KubeCluster.connect(str(installed.cluster.kubeconfig)) as cluster:
            await install_kinds(cluster)

    asyncio.run(install())
    return installed


def first_node(bench, folder, *words):
    session = Session(kubeconfig=str(bench.cluster.kubeconfig))
    options = ["--report", str(folder), "--image", bench.product.node, *words]
    return CliRunner().invoke(program, ["first-node", bench.node.name, *options], obj=session)


def own_pods(bench):
    pods = bench.api.get(f"/api/v1/pods?{OWN_PODS}")["items"]
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]


@pytest.fixture
def device(bench):
    """A device file of NVIDIA's driver on the node; simulated: it is that of /dev/null."""
    pods = "/api/v1/namespaces/default/pods"

    def run_there(name, command):
        mount = {"name": "dev", "mountPath": "/node-dev"}
        container = {"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never", "volumeMounts": [mount]}
        container |= {"command": ["/bin/busybox", *command], "securityContext": {"privileged": True}}
        spec = {"nodeName": bench.node.name, "restartPolicy": "Never", "containers": [container]}
        spec |= {"volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}]}
        bench.api.create(pods, {"metadata": {"name": name}, "spec": spec})
        soon(lambda: bench.api.get(f"{pods}/{name}")["status"]["phase"] == "Succeeded", 60)
        bench.api.delete(f"{pods}/{name}?gracePeriodSeconds=0")

    run_there("make-device", ["mknod", "/node-dev/nvidia0", "c", "1", "3"])
    yield
    run_there("remove-device", ["rm", "/node-dev/nvidia0"])


def node_state(bench):
    spec = bench.api.get(f"/api/v1/nodes/{bench.node.name}")["spec"]
    return spec.get("unschedulable", False), spec.get("taints", [])


def test_a_holder_of_a_device_is_named_and_put_back(bench, device, tmp_path):
    before = node_state(bench)
    ended = first_node(bench, tmp_path, "--go", "9")
    assert "phase 9 Holders: passed" in ended.output, ended.output
    assert (node_state(bench), own_pods(bench)) == (before, [])
    (row,) = csv.DictReader((tmp_path / "measured.csv").read_text().splitlines())
    assert (row["what"], row["limit"], float(row["ratio"]) > 0) == ("holders: named by the survey", "10", True)


def test_pods_with_one_and_with_all_gpus_get_their_devices(bench, tmp_path):
    before = node_state(bench)
    ended = first_node(bench, tmp_path, "--go", "7")
    assert "phase 7 Runtime: passed" in ended.output, ended.output
    assert (node_state(bench), own_pods(bench)) == (before, [])
    rows = csv.DictReader((tmp_path / "measured.csv").read_text().splitlines())
    assert [row["what"] for row in rows] == ["runtime: pod with 1 GPU(s)", "runtime: pod with 8 GPU(s)"]


def test_the_first_four_phases_on_a_node(bench, tmp_path):
    ended = first_node(bench, tmp_path)
    journal = json.loads((tmp_path / "private/journal.json").read_text())
    verdicts = {entry["phase"]: entry["verdict"] for entry in journal["entries"]}
    # No controller runs here; a stack does not select the node.
    assert verdicts == {0: "findings", 1: "passed", 2: "passed", 3: "skipped"}, ended.output
    assert own_pods(bench) == []
    folder = tmp_path / "02-baseline"
    assert "ID=" in (folder / "os-release.txt").read_text()
    assert json.loads((folder / "absent.json").read_text())["nvidia-smi-q-x.xml"] == "the driver is not loaded"
    measured = {row["what"]: row for row in csv.DictReader((tmp_path / "measured.csv").read_text().splitlines())}
    assert 0 < float(measured["survey: pod"]["ratio"]) < 1
    assert list(csv.DictReader((tmp_path / "missed.csv").read_text().splitlines())) == []
    shared = [path for path in tmp_path.rglob("*") if path.suffix in {".md", ".json", ".csv", ".txt"}]
    shared = [path for path in shared if "private" not in path.parts]
    addresses = [each["address"] for each in bench.api.get(f"/api/v1/nodes/{bench.node.name}")["status"]["addresses"]]
    left = [
        (path.name, name)
        for path in shared
        for name in (bench.node.name, *addresses)
        if name.lower() in path.read_text().lower()
    ]
    assert left == []
