"""`upgrader first-node` without --go: four phases that only read, and their report."""

import csv
import hashlib
import json
import tarfile

import msgspec
import pytest

from tests.support.terminal import upgrader
from tests.unit.cli.first_node.conftest import (
    DONE,
    IMAGE,
    NODE,
    OUTPUTS,
    REPORT,
    SECRETS,
    first_node,
    lines,
    own_pods,
    read_journal,
    shared_files,
)
from upgrader.api.resources import NODES, PODS
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.errors import ConfigurationError, UpgraderError
from upgrader.core.first_node.phases import PHASES
from upgrader.core.node_protocol.recordings import RecordedOutput

FILES = {
    "00-cluster-and-node/node.json",
    "00-cluster-and-node/result.json",
    "01-survey/result.json",
    "02-baseline/absent.json",
    "02-baseline/dmesg.txt",
    "02-baseline/nvidia-smi-q-x.xml",
    "02-baseline/result.json",
    "03-forecast/forecast.txt",
    "03-forecast/result.json",
    "measured.csv",
    "missed.csv",
    "report.json",
    "report.md",
    "report.tar.gz",
    "report.tar.gz.sha256",
}


def rows(folder, name):
    return list(csv.DictReader((folder / name).read_text().splitlines()))


def verdicts(folder):
    return {entry.phase: entry.verdict.value for entry in read_journal(folder).entries}


def state(rig):
    """All objects but the pods of the run, which are being deleted."""
    stored = [each for each in rig.cluster.store.all_objects() if "deletionTimestamp" not in each.value["metadata"]]
    return {(each.kind.kind, each.value["metadata"]["name"]): each.raw for each in stored}


def test_it_changes_no_object_and_leaves_no_pod(node, tmp_path):
    before = state(node)
    ended = first_node(node, tmp_path)
    assert verdicts(tmp_path) == {0: "findings", 1: "passed", 2: "passed", 3: "passed"}, ended.output
    assert ended.exit_code == UpgraderError.exit_code  # no controller holds the Lease
    assert state(node) == before
    assert own_pods(node) == []
    assert read_journal(tmp_path).left == ()
    assert ended.output.splitlines()[-1].startswith(
        "Next: phase 7 (Runtime): `--go 7`. It changes: the node is cordoned"
    )


def test_the_report_has_every_file_and_no_secret_in_any(node, tmp_path):
    ended = first_node(node, tmp_path)
    files = shared_files(tmp_path)
    assert set(files) == FILES
    text = "\n".join([*files.values(), ended.output.replace(str(tmp_path), "")])
    assert [secret for secret in SECRETS if secret in text] == []
    assert "<serial>serial-" in files["02-baseline/nvidia-smi-q-x.xml"]
    assert [line for line in files["report.md"].splitlines() if line.startswith("| 4 ")] == [
        f"| 4 Unload | changes | not available |  | {PHASES[4].unavailable} |"
    ]


def test_names_that_are_known_late_are_hidden_in_earlier_files(node, tmp_path):
    finding = Advice(subject="storage-7", check="A", severity=Severity.WARNING, message="\ngpu-1.corp.example is slow")
    node.logs["survey"] = lines(msgspec.structs.replace(REPORT, findings=(finding,)))
    first_node(node, tmp_path)
    text = (tmp_path / "01-survey/result.json").read_text()
    assert ("storage-7" in text, "corp" in text) == (False, False)


def test_the_archive_has_the_shared_files_with_their_checksum_and_no_owner(node, tmp_path):
    first_node(node, tmp_path)
    packed = tmp_path / "report.tar.gz"
    digest, name = (tmp_path / "report.tar.gz.sha256").read_text().split()
    assert (digest, name) == (hashlib.sha256(packed.read_bytes()).hexdigest(), packed.name)
    with tarfile.open(packed) as archive:
        entries = [entry for entry in archive.getmembers() if entry.isfile()]
        texts = {entry.name: archive.extractfile(entry).read().decode() for entry in entries}
    files = shared_files(tmp_path)
    assert texts == {name: text for name, text in files.items() if not name.startswith("report.tar")}
    assert {(entry.uid, entry.uname, entry.mtime) for entry in entries} == {(0, "", 0)}


def test_a_log_without_its_end_is_a_finding(node, tmp_path):
    node.logs["record"] = lines(*OUTPUTS)
    first_node(node, tmp_path)
    assert "outputs are missing" in (tmp_path / "report.md").read_text()
    node.logs["record"] = lines(*OUTPUTS, DONE)
    first_node(node, tmp_path, "--go", "2")
    assert "outputs are missing" not in (tmp_path / "report.md").read_text()


def test_measured_durations_are_beside_the_limits(node, tmp_path):
    first_node(node, tmp_path)
    measured = {row["what"]: (row["seconds"], row["limit"], row["ratio"]) for row in rows(tmp_path, "measured.csv")}
    assert measured["survey: checks on the node"] == ("1.500", "120", "0.013")
    assert measured["baseline: nvidia-smi -q -x"] == ("4.000", "120", "0.033")
    assert "forecast" in measured


def test_what_the_survey_misses_is_a_row(node, tmp_path):
    node.logs["survey"] = lines(msgspec.structs.replace(REPORT, facts={"kernel": "6.1.0-48-amd64"}))
    fuser = "                     USER        PID ACCESS COMMAND\n/dev/nvidia0:        root       1234 F...m dcgm\n"
    modules = "nvidia 5 2 nvidia_uvm,gdrdrv, Live 0x0\nnvidia_uvm 1 0 - Live 0x0\ngdrdrv 1 0 - Live 0x0\n"
    node.logs["record"] = lines(
        RecordedOutput(name="names", source="names"),
        RecordedOutput(name="fuser.txt", source="fuser", text=fuser),
        RecordedOutput(name="holders.txt", source="holders", text="pid 99 (train)"),
        RecordedOutput(name="modules.txt", source="/proc/modules", text=modules),
        RecordedOutput(name="removal-order.txt", source="order", text="nvidia_uvm\nnvidia"),
    )
    first_node(node, tmp_path)
    assert rows(tmp_path, "missed.csv") == [
        {"expected": "kernel 6.1.0-47-amd64", "found": "6.1.0-48-amd64", "where": "Node against survey"},
        {"expected": "kubelet v1.34.4", "found": "nothing", "where": "Node against survey"},
        {"expected": "pid 1234 (dcgm)", "found": "nothing", "where": "fuser against survey"},
        {"expected": "module gdrdrv", "found": "nothing", "where": "/proc/modules against /sys/module"},
    ]


@pytest.mark.parametrize("log", [b"", b"Traceback\n", b'{"name": 3}\n', b"\xff{\n", lines({"name": "names"})])
def test_a_log_that_is_none_fails_its_phase_only(node, tmp_path, log):
    node.logs["record"] = log
    first_node(node, tmp_path)
    assert verdicts(tmp_path) == {0: "findings", 1: "passed", 2: "failed", 3: "passed"}
    assert "no recorded outputs" in (tmp_path / "report.md").read_text()
    assert own_pods(node) == []


def test_a_forged_name_is_no_path(node, tmp_path):
    names = RecordedOutput(name="names", source="names")
    good = RecordedOutput(name="cmdline.txt", source="/proc/cmdline", text="quiet")
    forged = [
        RecordedOutput(name=name, source="a", text="b")
        for name in ("../../../evil.txt", "/etc/evil.txt", "result.json", "a/b.txt", ".txt")
    ]
    node.logs["record"] = lines(names, *forged, good)
    first_node(node, tmp_path / "report")
    folder = tmp_path / "report/02-baseline"
    assert sorted(path.name for path in folder.iterdir()) == ["absent.json", "cmdline.txt", "result.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_pod_that_does_not_end_fails_its_phase_and_is_deleted(node, tmp_path):
    del node.logs["survey"]
    first_node(node, tmp_path)
    assert verdicts(tmp_path)[1] == "failed"
    assert own_pods(node) == []


def test_a_phase_can_run_again_and_the_report_keeps_the_others(node, tmp_path):
    first_node(node, tmp_path)
    ended = first_node(node, tmp_path, "--go", "1")
    assert ended.exit_code == 0, ended.output
    assert [entry.phase for entry in read_journal(tmp_path).entries] == [0, 1, 2, 3, 1]
    assert set(shared_files(tmp_path)) == FILES


@pytest.mark.parametrize("number", [phase.number for phase in PHASES if phase.unavailable])
def test_a_phase_that_is_not_available_is_refused_with_its_reason(node, tmp_path, number):
    ended = first_node(node, tmp_path / "report", "--go", str(number))
    assert ended.exit_code == ConfigurationError.exit_code
    assert PHASES[number].unavailable in ended.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [-1, len(PHASES)])
def test_a_phase_that_does_not_exist_is_refused(node, tmp_path, number):
    ended = first_node(node, tmp_path / "report", "--go", str(number))
    assert (ended.exit_code, f"there is no phase {number}" in ended.output) == (1, True)


def test_a_folder_of_another_node_or_without_a_readable_journal_is_refused(node, tmp_path):
    first_node(node, tmp_path)
    words = ("first-node", "gpu-2", "--report", str(tmp_path), "--image", IMAGE)
    assert f"is the report of node {NODE}" in upgrader(node, *words).output
    journal = tmp_path / "private/journal.json"
    value = json.loads(journal.read_text())
    for damaged in ("", "[]", json.dumps(value | {"key": "xyz"}), json.dumps(value | {"version": 9})):
        journal.write_text(damaged)
        ended = first_node(node, tmp_path)
        assert (ended.exit_code, "journal" in ended.output) == (1, True)
        assert journal.read_text() == damaged


def test_a_node_that_does_not_exist_is_refused_before_any_pod(node, tmp_path):
    node.cluster.store.remove(NODES, NODE)
    pods = list(node.cluster.store.copy_all(PODS))
    assert f"node {NODE} not found" in first_node(node, tmp_path).output
    assert [pod["metadata"]["name"] for pod in node.cluster.store.copy_all(PODS)] == [
        pod["metadata"]["name"] for pod in pods
    ]


def test_the_private_folder_is_for_its_owner_only(node, tmp_path):
    first_node(node, tmp_path)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700
