"""uninstall: whatever is under way, nothing stays stopped or marked."""

import asyncio
import json

import msgspec
import pytest
import yaml

from tests.support.repository import ROOT
from tests.support.terminal import upgrader
from upgrader.api import names
from upgrader.api.kinds import KINDS
from upgrader.api.kubernetes import Node
from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    CONTROLLER_REVISIONS,
    DRIVER_IMAGES,
    GPU_STACKS,
    JOBS,
    NODE_UPGRADES,
    NODES,
    PODS,
    POLICIES,
    SERVICES,
    UPGRADE_PLANS,
)
from upgrader.cli.admin import uninstallation
from upgrader.cli.shared import policies
from upgrader.core.errors import ClusterError, ConfigurationError
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.kube.install import CRDS

OWN_KINDS = (GPU_STACKS, UPGRADE_PLANS, NODE_UPGRADES, CHECKPOINT_REQUESTS, DRIVER_IMAGES, CONTROLLER_REVISIONS)


def left(rig):
    return [f"{kind.kind} {one['metadata']['name']}" for kind in OWN_KINDS for one in rig.cluster.store.copy_all(kind)]


def marks(rig):
    return [
        (node["metadata"]["name"], name)
        for node in rig.nodes()
        for name in (*node["metadata"].get("labels", {}), *node["metadata"].get("annotations", {}))
        if name.startswith(f"{names.GROUP}/")
    ]


def at(rig, done):
    asyncio.run(rig.run_until(done))


def gang(rig):
    return next((one.status.phase for one in rig.requests() if one.spec.gang.endswith("gang")), None)


MOMENTS = {
    "idle": lambda rig: True,
    "gang asked": lambda rig: gang(rig) is RequestPhase.REQUESTED,
    "gang parked": lambda rig: gang(rig) is RequestPhase.PARKED,
    "gang stopped": lambda rig: gang(rig) is RequestPhase.STOPPED,
    "nodes upgraded": lambda rig: sum(one.status.phase is NodePhase.UPGRADING for one in rig.all_upgrades()) == 2,
    "gang restarting": lambda rig: gang(rig) is RequestPhase.RESTARTING,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_at_any_moment(rig, forecast_file, moment):
    assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
    rig.all_upgrades = lambda: rig.list_objects(NODE_UPGRADES, NODE_UPGRADES.type)
    at(rig, lambda: MOMENTS[moment](rig))
    ended = upgrader(rig, "uninstall", "--auto-approve")
    assert ended.exit_code == 0, ended.output
    assert (left(rig), marks(rig)) == ([], [])
    rig.assert_nothing_left()
    step = rig.fleet.trainers["gang"].step
    at(rig, lambda: rig.fleet.trainers["gang"].step > step + 5)
    assert rig.fleet.trainers["gang"].lost == 0


SHIPPED = {policy.name: policy for policy in policies.SHIPPED}
OTHERS = "somebody-elses"


def install(rig, name, *, binds=None):
    """A policy of deploy/ and its binding."""
    policy = SHIPPED.get(name, SHIPPED["gpu-upgrader-steering"])
    rig.cluster.store.put(policy.kind, {"metadata": {"name": name}})
    rig.cluster.store.put(policy.binding, {"metadata": {"name": name}, "spec": {"policyName": binds or name}})


def there(rig):
    kinds = dict.fromkeys(kind for policy in policies.SHIPPED for kind in (policy.kind, policy.binding))
    return [found["metadata"]["name"] for kind in kinds for found in rig.cluster.store.copy_all(kind)]


@pytest.mark.parametrize("installed", [(), *((name,) for name in SHIPPED), tuple(SHIPPED)])
def test_our_admission_policies_go_and_those_of_others_stay(rig, installed):
    for name in (*installed, OTHERS):
        install(rig, name)
    ended = upgrader(rig, "uninstall", "--auto-approve")
    assert ended.exit_code == 0, ended.output
    said = " ".join(ended.output.split())
    for name in SHIPPED:
        assert (f"admission policy {name} is deleted" in said) is (name in installed)
    assert there(rig) == [OTHERS] * 2


def test_without_consent_no_policy_is_deleted(rig):
    install(rig, "gpu-upgrader-steering")
    ended = upgrader(rig, "uninstall", answer="n\n")
    assert ended.exit_code == 1
    assert there(rig) == ["gpu-upgrader-steering"] * 2


def test_a_binding_with_our_name_that_binds_a_policy_of_others_stays(rig):
    install(rig, "gpu-upgrader-steering", binds=OTHERS)
    rig.cluster.store.remove(POLICIES, "gpu-upgrader-steering")
    ended = upgrader(rig, "uninstall", "--auto-approve")
    assert ended.exit_code == 0, ended.output
    assert there(rig) == ["gpu-upgrader-steering"]
    assert "admission policy" not in ended.output


def test_who_may_not_delete_policies_is_told_how_somebody_else_can(rig):
    install(rig, "gpu-upgrader-steering")

    def refuse(write):
        if (write.verb, write.kind) == ("delete", "MutatingAdmissionPolicyBinding"):
            raise ClusterError("the API server does not allow it")

    rig.cluster.before_write = refuse
    ended = upgrader(rig, "uninstall", "--auto-approve")
    assert ended.exit_code == 0, ended.output
    said = " ".join(ended.output.split())
    assert (
        "gpu-upgrader-steering: the API server does not allow it; if it is installed, delete it with: kubectl" in said
    )
    assert there(rig) == ["gpu-upgrader-steering"] * 2


def test_policies_go_before_our_kinds_which_one_of_them_reads(rig):
    install(rig, "gpu-upgrader-steering")
    for kind in KINDS:
        name = f"{kind.resource.plural}.{kind.resource.group}"
        rig.cluster.store.put(CRDS, {"metadata": {"name": name}})
    ended = upgrader(rig, "uninstall", "--crds", "--auto-approve")
    assert ended.exit_code == 0, ended.output
    kinds = [one.kind for one in rig.cluster.writes if one.verb == "delete"]
    assert kinds.index("MutatingAdmissionPolicy") < kinds.index(CRDS.kind)


@pytest.mark.parametrize("file", sorted((ROOT / "deploy").glob("admission-*.yaml")), ids=lambda file: file.stem)
def test_every_admission_policy_that_is_shipped_is_known_with_its_kinds(file):
    [policy] = [each for each in policies.SHIPPED if ROOT / each.file == file]
    found = {each["kind"]: each for each in yaml.safe_load_all(file.read_text())}
    assert {kind: each["metadata"]["name"] for kind, each in found.items()} == {
        policy.kind.kind: policy.name,
        policy.binding.kind: policy.name,
    }
    assert found[policy.binding.kind]["spec"]["policyName"] == policy.name


def test_what_a_stack_orders_in_the_moment_before_it_is_deleted_is_taken_back(rig):
    def order(write):
        if (write.verb, write.kind) != ("delete", "GpuStack") or rig.cluster.store.find(NODE_UPGRADES, "late"):
            return
        body = next(iter(rig.cluster.store.copy_all(NODE_UPGRADES)))
        late = {"metadata": {"name": "late", "labels": body["metadata"]["labels"]}, "spec": body["spec"]}
        rig.cluster.store.put(NODE_UPGRADES, late)

    rig.cluster.before_write = order
    ended = upgrader(rig, "uninstall", "--auto-approve")
    assert ended.exit_code == 0, ended.output
    assert "(Pending)" in ended.output
    assert (left(rig), marks(rig)) == ([], [])


def test_a_stack_that_somebody_holds_is_waited_for(rig):
    stack = next(rig.cluster.store.copy_all(GPU_STACKS))["metadata"]["name"]
    rig.cluster.store.change(GPU_STACKS, stack, {"metadata": {"finalizers": ["example.com/mine"]}})
    ended = upgrader(rig, "uninstall", "--auto-approve", "--timeout", "30", controller=False)
    assert (ended.exit_code, f"GpuStack {stack}" in ended.stderr) == (5, True)


def test_without_a_controller_nothing_is_deleted(rig, forecast_file):
    assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
    at(rig, lambda: gang(rig) is RequestPhase.STOPPED)
    before = left(rig)
    ended = upgrader(rig, "uninstall", "--auto-approve", "--timeout", "30", controller=False)
    assert ended.exit_code == 5
    assert "gang default/Job/gang (Stopped)" in ended.stderr
    assert left(rig) == before


def test_what_people_set_stays(rig):
    person = {"metadata": {"labels": {names.LABEL_SKIP: "true"}}, "spec": {"unschedulable": True}}
    rig.cluster.store.change(NODES, "gpu-0", person)
    assert upgrader(rig, "uninstall", "--auto-approve").exit_code == 0
    node = rig.cluster.store.find(NODES, "gpu-0")
    assert node["spec"]["unschedulable"] is True
    assert marks(rig) == [("gpu-0", names.LABEL_SKIP)]


def test_marks_of_a_node_upgrade_that_failed_and_records_on_jobs_go(rig):
    taints = [
        {"key": names.TAINT_MAINTENANCE, "value": "group-1", "effect": "NoSchedule"},
        {"key": "other", "effect": "NoExecute"},
    ]
    rig.cluster.store.change(NODES, "gpu-3", {"spec": {"taints": taints}})
    record = '{"plan":"gone","request":"gone","previous":false}'
    stopped = {"metadata": {"annotations": {names.ANNOTATION_STOPPED: record}}, "spec": {"suspend": True}}
    rig.cluster.store.change(JOBS, "solo", stopped, "default")
    ended = upgrader(rig, "uninstall", "--auto-approve")
    assert ended.exit_code == 0, ended.output
    assert rig.cluster.store.find(NODES, "gpu-3")["spec"]["taints"] == [{"key": "other", "effect": "NoExecute"}]
    job = rig.cluster.store.find(JOBS, "solo", "default")
    assert (job["spec"]["suspend"], names.ANNOTATION_STOPPED in job["metadata"]["annotations"]) == (False, False)


def test_a_job_that_somebody_else_suspended_stays_so(rig):
    rig.cluster.store.change(JOBS, "solo", {"spec": {"suspend": True}}, "default")
    assert upgrader(rig, "uninstall", "--auto-approve").exit_code == 0
    assert rig.cluster.store.find(JOBS, "solo", "default")["spec"]["suspend"] is True


def test_marks_that_may_not_be_taken_from_a_pod_are_an_error(rig):
    """Before, it ended well and reported that no object was marked."""
    marked = {names.ANNOTATION_REQUEST: "1", names.ANNOTATION_PARK_SECONDS: "600"}
    meta = {"name": "left", "namespace": "team", "annotations": marked}
    rig.cluster.store.put(PODS, {"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Running"}})

    def refuse(write):
        if (write.kind, write.namespace) == (PODS.kind, "team"):
            raise ConfigurationError("pods is forbidden")

    rig.cluster.before_write = refuse
    ended = upgrader(rig, "uninstall", "--auto-approve")
    assert (ended.exit_code, "pods is forbidden" in ended.output) == (1, True), ended.output
    assert "checkpoint request on pod team/left is not removed" in ended.output
    assert "upgrader is uninstalled" not in ended.output
    marks = {name for node in rig.nodes() for name in node["metadata"]["labels"] if name.startswith(names.GROUP)}
    assert marks == set(), "nodes are released all the same"


def test_it_asks(rig):
    before = left(rig)
    ended = upgrader(rig, "uninstall", answer="n\n")
    assert (ended.exit_code, left(rig)) == (1, before)


FEATURE = "feature.node.kubernetes.io/kernel-version.full"


@pytest.mark.parametrize(("value", "taken"), [("6.1.0", {FEATURE: None}), ("changed", {})])
def test_feature_labels_of_a_stack_that_went_while_no_controller_ran_are_removed(value, taken):
    record = json.dumps({"stack": "gone", "bootId": "boot-1", "labels": {FEATURE: "6.1.0"}})
    marked = {"labels": {FEATURE: value, "zone": "a"}, "annotations": {names.ANNOTATION_NODE_FEATURES: record}}
    node = msgspec.convert({"metadata": {"name": "a", **marked}}, Node)
    left = {"metadata": {"labels": taken, "annotations": {names.ANNOTATION_NODE_FEATURES: None}}}
    assert uninstallation._cleanup_patch(node) == left


def test_feature_labels_of_a_stack_go_with_it(rig):
    rig.apply_stack(rig.make_spec("1.0") | {"nodeFeatures": "Auto"})
    at(rig, lambda: all(FEATURE in node["metadata"]["labels"] for node in rig.nodes()))
    ended = upgrader(rig, "uninstall", "--auto-approve")
    assert ended.exit_code == 0, ended.output
    assert [name for node in rig.nodes() for name in node["metadata"]["labels"] if name == FEATURE] == []
    assert marks(rig) == []


def test_what_found_exporters_goes_and_other_services_stay(rig):
    rig.registry.push("registry/exporter:1", "cc")
    monitored = rig.make_spec("1.0") | {"monitoring": {"management": "Managed", "image": "registry/exporter:1"}}
    rig.apply_stack(monitored)
    at(rig, lambda: bool(list(rig.cluster.store.copy_all(SERVICES))))
    service = {"metadata": {"name": "metrics", "namespace": "gpu-upgrader-system"}, "spec": {}}
    rig.cluster.store.put(SERVICES, service)
    assert upgrader(rig, "uninstall", "--auto-approve").exit_code == 0
    assert [one["metadata"]["name"] for one in rig.cluster.store.copy_all(SERVICES)] == ["metrics"]
