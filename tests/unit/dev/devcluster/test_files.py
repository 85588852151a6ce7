"""What is written for the programs: their settings, the sandbox image, the plan of a box."""

import io
import json
import tarfile
import tomllib

import msgspec
import pytest

from upgrader.core.errors import DevClusterError
from upgrader.process.places import last_lines, state_root, write_atomically
from upgrader.process.supervise import SupervisedProgram
from upgrader_dev.devcluster.base import plan
from upgrader_dev.devcluster.base.addresses import Addresses
from upgrader_dev.devcluster.base.plan import BootStage, NodeMounts, Plan, Ready
from upgrader_dev.devcluster.base.spec import KwokSpec, NodeTaint
from upgrader_dev.devcluster.box import node_files, pause
from upgrader_dev.devcluster.control_plane.control_plane import KWOK_LABEL, _audit_policy
from upgrader_dev.devcluster.kwok.kwok_node import node_object


def test_containerds_settings_are_toml_and_stay_on_the_nodes_disk():
    read = tomllib.loads(node_files.containerd_config().decode())

    cri = read["plugins"]["io.containerd.grpc.v1.cri"]
    assert (cri["sandbox_image"], cri["cni"]["conf_dir"]) == ("localhost/pause:1", "/var/lib/box/cni")
    assert read["plugins"]["io.containerd.internal.v1.opt"]["path"].startswith("/var/lib/")


def test_only_the_clusters_registry_is_plain_http():
    read = tomllib.loads(node_files.registry_hosts("10.70.0.2:5000").decode())

    assert read == {
        "server": "http://10.70.0.2:5000",
        "host": {"http://10.70.0.2:5000": {"capabilities": ["pull", "resolve"]}},
    }


def test_a_node_has_its_own_pod_subnet():
    read = json.loads(node_files.pod_network(Addresses(octet=70), 3))

    assert read["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.70.13.0/24"}]]


@pytest.mark.parametrize("fast", [True, False])
def test_a_fast_clusters_kubelet_reports_changes_within_a_second_and_else_every_ten(fast):
    read = json.loads(node_files.kubelet_config(fast=fast))

    assert read.get("nodeStatusUpdateFrequency") == ("1s" if fast else None)
    assert read.get("nodeStatusReportFrequency") == ("10s" if fast else None)
    assert read["failCgroupV1"] is False
    assert read["imageGCHighThresholdPercent"] == 100


def test_the_sandbox_image_is_what_its_manifest_says(tmp_path):
    pause.make_archive(tmp_path / "pause.tar")

    with tarfile.open(tmp_path / "pause.tar") as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}
    manifest = json.loads(files["manifest.json"])[0]
    config = json.loads(files[manifest["Config"]])
    digest = pause.hashlib.sha256(files[manifest["Layers"][0]]).hexdigest()
    assert manifest["RepoTags"] == ["localhost/pause:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
    with tarfile.open(fileobj=io.BytesIO(files["layer.tar"])) as layer:
        assert layer.getmember("bin/busybox").mode == 0o755


def test_the_sandbox_image_without_busybox(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DevClusterError, match="busybox is missing") as raised:
        pause.make_archive(tmp_path / "pause.tar")

    assert "busybox-static" in raised.value.resolution


def test_a_plan_is_read_as_it_was_written(tmp_path):
    program = SupervisedProgram(name="p", words=("p", "-x"), log="/p.log", env={"A": "b"})
    ready = Ready(kind="socket", address="/run/p.sock")
    written = Plan(
        hostname="gpu-a",
        holds="/holds",
        journal="/journal",
        stages=(BootStage(programs=(program,), ready=ready, commands=(("a", "b"),)),),
        network="link set lo up\n",
        mounts=NodeMounts(var_lib="/l", var_log="/g", shared="/s", kernel="6.1.0-50-amd64"),
    )

    plan.write_plan(tmp_path, written)

    assert plan.read_plan(tmp_path) == written
    assert written.kernel == "6.1.0-50-amd64"
    assert msgspec.structs.replace(written, mounts=None).kernel == ""


@pytest.mark.parametrize(
    ("label", "may"),
    [
        ("nvidia.com/gpu.product", True),
        ("pool", True),
        ("gpu-upgrader.io/skip", True),
        ("feature.node.kubernetes.io/kernel-version.full", False),
        ("kubernetes.io/os", False),
        ("node-role.k8s.io/x", False),
        ("notkubernetes.io/x", True),
    ],
)
def test_labels_that_a_kubelet_may_not_give_itself(label, may):
    assert node_files.kubelet_may_set(label) is may


def test_a_kwok_node_is_as_asked_for():
    spec = KwokSpec(
        count=1,
        gpus=4,
        resource="amd.com/gpu",
        labels={"pool": "a"},
        taints=(NodeTaint(key="k", effect="NoExecute", value="v"),),
        kernel="6.1.0-50-amd64",
        kubelet="1.35.4",
    )

    node = node_object(spec, "kwok-0")

    info = node["status"]["nodeInfo"]
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": "kwok-0",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
        "pool": "a",
        KWOK_LABEL: "kwok",
    }
    assert node["spec"] == {"taints": [{"key": "k", "effect": "NoExecute", "value": "v"}]}
    assert node["status"]["allocatable"] == {"cpu": "64", "memory": "1Ti", "pods": "110", "amd.com/gpu": "4"}
    assert (info["kernelVersion"], info["kubeletVersion"]) == ("6.1.0-50-amd64", "v1.35.4")
    assert node_object(spec, "kwok-0")["status"]["nodeInfo"]["bootID"] != info["bootID"]


def test_a_kwok_node_without_gpus_has_no_such_resource():
    assert "nvidia.com/gpu" not in node_object(KwokSpec(count=1, gpus=0), "kwok-0")["status"]["allocatable"]


def test_the_audit_policy_ends_with_everything_else():
    assert _audit_policy("")["rules"][-1] == {"level": "Metadata"}


def test_reads_are_in_the_audit_log_only_of_the_group_that_is_named():
    silent, *_ = _audit_policy("")["rules"]
    assert silent == {"level": "None", "verbs": ["get", "list", "watch"]}
    reads, leases, *rest = _audit_policy("system:serviceaccounts:gpu")["rules"]
    assert {one["level"] for one in (reads, leases)} == {"Metadata"}
    assert reads["userGroups"] == leases["userGroups"] == ["system:serviceaccounts:gpu"]
    assert rest == list(_audit_policy("")["rules"])


def test_a_state_directory_that_is_not_absolute_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_root() == tmp_path / ".local" / "state" / "upgrader"

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_root() == tmp_path / "state" / "upgrader"


def test_a_file_is_written_whole_with_its_mode(tmp_path):
    write_atomically(tmp_path / "new" / "file", b"a", mode=0o600)
    write_atomically(tmp_path / "new" / "file", b"b", mode=0o600)

    assert (tmp_path / "new" / "file").read_bytes() == b"b"
    assert (tmp_path / "new" / "file").stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["file"]


def test_the_end_of_a_log(tmp_path):
    log = tmp_path / "log"
    assert last_lines(log) == ""

    log.write_text("a\nb\nc\n")
    assert last_lines(log, 2) == f"{log}:\nb\nc"
