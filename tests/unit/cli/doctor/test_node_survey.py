"""`upgrader doctor --node`: one pod per node, its report, and what is left when something fails."""

import json

import msgspec
import pytest

from tests.support.terminal import upgrader
from upgrader.api import names
from upgrader.api.resources import NODES, PODS
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.node_survey import SurveyReport
from upgrader.core.errors import ConfigurationError, UpgraderError
from upgrader.core.node_protocol.orders import ORDER_VARIABLE, KubeletTarget, SurveyScope

IMAGE = f"registry.example/node@sha256:{'a' * 64}"
HOLDER = Advice(
    subject="nvidia-persistenced.service",
    check="DriverInUse",
    severity=Severity.PROBLEM,
    message="process 812 (nvidia-persistenced) has /dev/nvidia0 open",
    fix="Stop the unit for the upgrade.",
)
MIG = Advice(subject="GPU 0", check="MigDevices", severity=Severity.WARNING, message="has partitions", fix="Expect it.")
HELD = SurveyReport(findings=(HOLDER, MIG), facts={"kernel": "6.1.0-47-amd64"})
WARNED = SurveyReport(findings=(MIG,), facts={"kernel": "6.1.0-49-amd64"})


@pytest.fixture
def surveyed(rig):
    """Survey pods end as soon as they are created; `logs` has the log of each node, and `scopes` the orders."""
    rig.logs = {"gpu-1": line(HELD), "gpu-2": line(WARNED)}
    rig.scopes = {}

    def end_pods(change):
        pod = change.after
        if pod is None or pod.get("metadata", {}).get("labels", {}).get(names.LABEL_COMPONENT) != "survey":
            return
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        if pod.get("status", {}).get("phase") in {"Succeeded", "Failed"} or node not in rig.logs:
            return
        (container,) = pod["spec"]["containers"]
        (order,) = [entry["value"] for entry in container["env"] if entry["name"] == ORDER_VARIABLE]
        rig.scopes[node] = msgspec.json.decode(order, type=SurveyScope)
        rig.cluster.logs[name, "survey"] = rig.logs[node]
        rig.cluster.store.change(PODS, name, {"status": {"phase": "Failed"}}, pod["metadata"]["namespace"])

    rig.cluster.store.listeners.append(end_pods)
    return rig


def line(report):
    return msgspec.json.encode(report) + b'\n{"reason":"NodeUnsuitable"}\n'


def survey(rig, *words):
    return upgrader(rig, "doctor", *words, "--image", IMAGE, "--output", "json")


def reports(ended):
    return {shown["node"]: msgspec.convert(shown["report"], SurveyReport) for shown in json.loads(ended.stdout)}


def failure(ended, node="gpu-1"):
    """The only finding on a node that could not be surveyed."""
    (finding,) = reports(ended)[node].findings
    return finding.check, finding.severity, finding.message


def survey_pods(rig):
    """Those that are not deleted; there is no kubelet that ends a pod within its grace period."""
    metas = [pod["metadata"] for pod in rig.cluster.store.copy_all(PODS)]
    surveys = [meta for meta in metas if meta.get("labels", {}).get(names.LABEL_COMPONENT) == "survey"]
    return [meta["name"] for meta in surveys if "deletionTimestamp" not in meta]


def test_each_node_has_its_report_and_a_problem_is_the_exit_code(surveyed):
    ended = survey(surveyed, "--node", "gpu-1", "--node", "gpu-2")
    assert reports(ended) == {"gpu-1": HELD, "gpu-2": WARNED}
    assert ended.exit_code == UpgraderError.exit_code
    assert survey(surveyed, "--node", "gpu-2").exit_code == 0
    assert survey_pods(surveyed) == []


def test_the_table_has_facts_and_resolutions(surveyed):
    shown = upgrader(surveyed, "doctor", "--node", "gpu-1", "--image", IMAGE).stdout
    for text in ("node gpu-1", "6.1.0-47-amd64", "nvidia-persistenced.service", "Stop the unit"):
        assert text in shown


def test_the_scope_is_that_of_the_stack_of_the_node(surveyed):
    surveyed.apply_stack(surveyed.make_spec("2.0", kubelet="1.35.4"))
    survey(surveyed, "--node", "gpu-1")
    assert surveyed.scopes == {
        "gpu-1": SurveyScope(
            vendor="sim",
            services=(),
            kubelet=KubeletTarget(version="1.35.4", binary="/usr/bin/kubelet"),
            restarts_kubelet=True,
            binary="/usr/bin/kubelet",
            resources=("nvidia.com/gpu",),
            namespace="gpu-upgrader-system",
        )
    }


@pytest.mark.parametrize(
    ("kernel", "action", "reboots"),
    [("6.1.0-47-amd64", "Fail", False), ("6.1.0-47-amd64", "Reboot", True), ("6.1.0-50-amd64", "Fail", True)],
)
def test_a_reboot_of_the_stack_is_in_the_scope_as_in_that_of_an_upgrade(surveyed, kernel, action, reboots):
    spec = surveyed.make_spec("2.0") | {"reboot": {"kernel": kernel, "select": ["/sbin/choose"]}}
    spec["driver"]["onUnloadFailure"] = action
    surveyed.apply_stack(spec)
    survey(surveyed, "--node", "gpu-1")
    scope = surveyed.scopes["gpu-1"]
    assert (scope.reboots, scope.ends_pods) == (reboots, reboots)


def test_without_a_stack_it_is_the_driver_of_nvidia(surveyed):
    surveyed.cluster.store.put(NODES, {"metadata": {"name": "other"}})
    surveyed.logs["other"] = line(WARNED)
    survey(surveyed, "--node", "other")
    assert surveyed.scopes["other"] == SurveyScope(vendor="nvidia", namespace="gpu-upgrader-system")


@pytest.mark.parametrize("log", [b"", b"Traceback (most recent call last):\n", b'{"findings": 3}\n', b"\xff\xfe{\n"])
def test_a_log_that_is_no_report_is_a_problem_of_its_node_only_and_leaves_no_pod(surveyed, log):
    surveyed.logs["gpu-1"] = log
    ended = survey(surveyed, "--node", "gpu-1", "--node", "gpu-2")
    check, severity, message = failure(ended)
    assert (ended.exit_code, check, severity) == (UpgraderError.exit_code, "CannotLook", Severity.PROBLEM)
    assert message.startswith("the survey has no readable report")
    assert reports(ended)["gpu-2"] == WARNED
    assert survey_pods(surveyed) == []


def test_a_pod_that_does_not_end_is_a_problem_after_its_deadline(surveyed):
    del surveyed.logs["gpu-1"]
    ended = survey(surveyed, "--node", "gpu-1")
    check, severity, message = failure(ended)
    assert (check, severity) == ("CannotLook", Severity.PROBLEM)
    assert message.endswith("has not ended within 120 s")
    assert survey_pods(surveyed) == []


def test_a_node_that_does_not_exist_is_an_error_before_any_pod(surveyed):
    ended = survey(surveyed, "--node", "gpu-1", "--node", "nowhere")
    assert ended.exit_code == ConfigurationError.exit_code
    assert surveyed.scopes == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--image", IMAGE), "--image requires --node"),
        (("--node", "gpu-1", "--jobs"), "--jobs and --node are different checks"),
    ],
)
def test_options_that_contradict_each_other_are_refused(rig, words, message):
    ended = upgrader(rig, "doctor", *words)
    assert (ended.exit_code, message in ended.output) == (64, True)


def test_without_a_node_image_it_states_where_to_set_one(rig, monkeypatch):
    monkeypatch.delenv("UPGRADER_NODE_IMAGE", raising=False)
    ended = upgrader(rig, "doctor", "--node", "gpu-1")
    assert ended.exit_code == ConfigurationError.exit_code
    assert "no node image is set" in ended.output
