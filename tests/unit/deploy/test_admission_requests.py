"""deploy/admission-requests.yaml keeps what plans write to the controller, and people have a role of their own."""

import re

import msgspec
import yaml

from tests.support.repository import ROOT
from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS
from upgrader.api.v1alpha1.checkpoint_request import CheckpointRequestStatus
from upgrader.reconcile.render.custom_objects import LABEL_BATCH
from upgrader_dev.demo.controller import USER


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text()))


POLICY, BINDING = documents("admission-requests.yaml")
VARIABLES = {each["name"]: each["expression"] for each in POLICY["spec"]["variables"]}


def test_everybody_but_the_controller_is_judged_and_refused():
    spec = POLICY["spec"]
    assert [each["expression"] for each in spec["matchConditions"]] == [f"request.userInfo.username != '{USER}'"]
    assert spec["failurePolicy"] == "Fail"
    assert BINDING["spec"] == {"policyName": POLICY["metadata"]["name"], "validationActions": ["Deny"]}
    [rule] = spec["matchConstraints"]["resourceRules"]
    assert rule == {
        "apiGroups": [CHECKPOINT_REQUESTS.group],
        "apiVersions": [CHECKPOINT_REQUESTS.version],
        "resources": [CHECKPOINT_REQUESTS.plural, f"{CHECKPOINT_REQUESTS.plural}/status"],
        "operations": ["CREATE", "UPDATE"],
    }


def test_the_labels_of_plans_are_those_that_the_controller_goes_by():
    assert re.findall(r"'([^']+)'", VARIABLES["names"]) == [names.LABEL_PLAN, LABEL_BATCH, names.LABEL_GROUP]


def test_of_the_status_only_acks_is_open():
    fields = [field.encode_name for field in msgspec.structs.fields(CheckpointRequestStatus)]
    for variable, of in (("status", "object"), ("statusBefore", "oldObject")):
        compared = re.findall(rf"\[dyn\({of}\.status\.(\w+)\)\]", VARIABLES[variable])
        assert compared == [name for name in fields if name != "acks"]
        assert re.findall(rf"has\({of}\.status\.(\w+)\)", VARIABLES[variable]) == compared


def test_people_who_ask_jobs_can_stop_none_and_have_no_more_than_the_controller():
    roles = {each["metadata"]["name"]: each for each in documents("rbac.yaml") if each["kind"] == "ClusterRole"}

    def rights(role: str) -> set[tuple[str, str, str]]:
        return {
            (verb, group, resource)
            for rule in roles[role]["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    assert rights("gpu-upgrader-ask") < rights("gpu-upgrader-jobs")
    assert {group for _, group, _ in rights("gpu-upgrader-ask")} == {"", CHECKPOINT_REQUESTS.group}
    assert not {"pods/eviction"} & {resource for _, _, resource in rights("gpu-upgrader-ask")}
    assert ("delete", "", "pods") not in rights("gpu-upgrader-ask")
    bound = {
        each["roleRef"]["name"]
        for name in ("rbac.yaml", "job-namespace.yaml")
        for each in documents(name)
        if "roleRef" in each
    }
    assert "gpu-upgrader-ask" not in bound
