"""`upgrader doctor` on the fake cluster: what is read, what is asked, and what a refusal does."""

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.golden import assert_golden
from tests.support.repository import ROOT
from tests.support.terminal import upgrader
from upgrader.api.crd import crd_manifest
from upgrader.api.kinds import KINDS
from upgrader.api.resources import DAEMONSETS, DRIVER_IMAGES, GPU_STACKS, NAMESPACES, NODES, PDBS, PODS, POLICY_BINDINGS
from upgrader.api.v1alpha1 import DriverImage
from upgrader.cli.doctor import access
from upgrader.cli.doctor.doctor_checks import DEFINITIONS
from upgrader.core.doctor.rights import DIAGNOSES, forecast_rights
from upgrader.core.errors import ClusterError
from upgrader.core.timing import format_time
from upgrader.kube.lease import CONTROLLER, LEASES
from upgrader.reconcile.driver_image import image_reconciler
from upgrader_dev.simulated.cluster.ports import FakeTrust
from upgrader_dev.simulated.cluster.rig import STACK

GOLDEN = Path(__file__).parents[1] / "golden"
SYSTEM = "gpu-upgrader-system"


@pytest.fixture
def well(rig, monkeypatch):
    """The rig with a controller that leads and has a key, our kinds, and an API server that allows everything."""
    monkeypatch.setenv("PATH", "/nowhere")  # no buildah, wherever this test runs
    for kind in KINDS:
        rig.cluster.store.put(DEFINITIONS, crd_manifest(kind))
    spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 30, "renewTime": format_time(rig.cluster.clock.now())}
    rig.cluster.store.put(LEASES, {"metadata": {"name": CONTROLLER, "namespace": SYSTEM}, "spec": spec})
    now = {"metadata": {"creationTimestamp": format_time(rig.cluster.clock.now())}}
    rig.cluster.replies = {
        "SelfSubjectReview": lambda _: now,
        "SelfSubjectAccessReview": lambda _: {"status": {"allowed": True}},
        "SubjectAccessReview": lambda _: {"status": {"allowed": True}},
    }
    rig.trust = FakeTrust()
    asyncio.run(verify_images(rig))
    return rig


async def verify_images(rig):
    for image in rig.list_objects(DRIVER_IMAGES, DriverImage) * 2:
        await image_reconciler.reconcile_image(rig.context, image.metadata.name)


def uncounted(text):
    """How many rights there are is deploy/'s own business."""
    text = re.sub(r"\d+ of \d+ rights", "N of N rights", text)
    return re.sub(r"(all|and) \d+ (rights|more)", r"\1 N \2", text)


def found(rig):
    """What is not well, by subject."""
    shown = json.loads(upgrader(rig, "doctor", "--output", "json").stdout)
    return {one["subject"]: one for one in shown if one["severity"] != "ok"}


def driver_image(rig, name, phase, verified):
    spec = {"vendor": "nvidia", "version": "1", "kernel": "6.1", "image": "registry/driver:1"}
    conditions = [{"type": "Verified", "status": verified}] if verified else []
    status = {"phase": phase, "conditions": conditions}
    rig.cluster.store.put(DRIVER_IMAGES, {"metadata": {"name": name}, "spec": spec, "status": status})


def test_driver_images_that_nobody_vouches_for_are_named(well):
    for name, phase, verified in (
        ("signed", "Ready", "True"),
        ("refused", "Unusable", "False"),
        ("not-looked-at-yet", "Ready", ""),
    ):
        driver_image(well, name, phase, verified)
    assert found(well) == {}
    for name in "dbac":
        driver_image(well, name, "Ready", "False")
    said = found(well)["driver images"]
    shown = "pinned and not verified, as no key is set; only stacks that allow unverified images use them: a, b, c, …"
    assert (said["severity"], said["message"]) == ("warning", shown)


def test_a_stack_without_a_target_is_a_problem_of_its_own_and_hides_no_other_stack(well):
    broken = well.make_spec("1.0") | {"driver": {"vendor": "acme", "version": "1"}}
    well.cluster.store.put(GPU_STACKS, {"metadata": {"name": "broken"}, "spec": broken})
    assert list(found(well)) == ["stack broken"]
    assert found(well)["stack broken"]["check"] == "Valid"
    jobs = json.loads(upgrader(well, "doctor", "--jobs", "--output", "json").stdout)
    assert [one["subject"] for one in jobs["found"] if one["severity"] == "problem"] == ["stack broken"]


def test_which_of_our_admission_policies_are_installed(well):
    well.cluster.store.put(POLICY_BINDINGS, {"metadata": {"name": "gpu-upgrader-steering"}})
    shown = json.loads(upgrader(well, "doctor", "--output", "json").stdout)
    said = {one["subject"]: one["message"] for one in shown if one["check"] == "AdmissionPolicy"}
    assert said == {
        "policy gpu-upgrader-steering": "it is installed",
        "policy gpu-upgrader-checkpoint-mounts": "it is not installed; it is optional",
        "policy gpu-upgrader-requests": "it is not installed; it is optional",
    }


def test_a_cluster_that_is_well(well):
    before = len(well.cluster.writes)
    ended = upgrader(well, "doctor")
    assert ended.exit_code == 0, ended.output
    assert_golden(GOLDEN / "doctor.txt", uncounted(ended.stdout))
    assert well.cluster.writes[before:] == []


def test_a_cluster_that_nobody_has_set_up(rig, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    rig.cluster.git_version = "v1.35.0"

    def refused(_):
        raise ClusterError("the API server does not allow this", details="POST", resolution="Ask.")

    rig.cluster.replies = {
        "SelfSubjectReview": refused,
        "SelfSubjectAccessReview": lambda _: {"status": {"allowed": False}},
        "SubjectAccessReview": refused,
    }
    ended = upgrader(rig, "doctor")
    assert ended.exit_code == 1
    assert_golden(GOLDEN / "doctor-nothing.txt", uncounted(ended.stdout))


def test_what_the_controller_may_not_is_named_with_its_namespace(well):
    asked = []

    def judge(review):
        attributes = review["spec"]["resourceAttributes"]
        asked.append((review["spec"]["user"], attributes))
        return {"status": {"allowed": attributes.get("namespace") != "default"}}

    well.cluster.replies["SubjectAccessReview"] = judge
    (one,) = found(well).values()
    assert one["subject"] == "the controller's rights in default"
    assert "sed s/NAMESPACE/default/ deploy/job-namespace.yaml" in one["fix"]
    assert {user for user, _ in asked} == {f"system:serviceaccount:{SYSTEM}:gpu-upgrader"}
    services = [one["namespace"] for _, one in asked if one["resource"] == "services"]
    assert set(services) == {SYSTEM}


def test_whoever_may_only_look_is_told_so_and_it_is_no_problem(well):
    def judge(review):
        return {"status": {"allowed": review["spec"]["resourceAttributes"]["verb"] in {"get", "list"}}}

    well.cluster.replies["SelfSubjectAccessReview"] = judge
    (one,) = found(well).values()
    assert (one["subject"], one["severity"]) == ("your write access", "warning")
    assert upgrader(well, "doctor").exit_code == 0


def test_every_right_of_deploy_is_asked_for():
    granted = set()
    for document in yaml.safe_load_all((ROOT / "deploy/rbac.yaml").read_text()):
        for rule in document.get("rules", []):
            granted |= {
                (verb, group, resource)
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
            }
    assert {(one.verb, one.group, one.resource) for one in access.required_rights()} == granted


def test_a_silent_controller(well):
    well.cluster.clock.advance(31)
    now = {"metadata": {"creationTimestamp": format_time(well.cluster.clock.now())}}
    well.cluster.replies["SelfSubjectReview"] = lambda _: now
    assert found(well)["controller"]["message"] == "no controller runs: the last leader was pod-1, 31 s ago"


def test_definitions_of_another_release(well):
    well.cluster.store.remove(DEFINITIONS, "driverimages.gpu-upgrader.io")
    other = crd_manifest(KINDS[0])
    other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("driver")
    well.cluster.store.put(DEFINITIONS, other)
    assert {name: one["message"] for name, one in found(well).items()} == {
        "driverimages.gpu-upgrader.io": "it is not installed",
        "gpustacks.gpu-upgrader.io": "it is of another release: "
        "spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.driver differs",
    }


def test_others_on_our_nodes(well):
    well.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {"nvidia.com/gpu.deploy.driver": "true"}}})
    well.cluster.store.put(
        DAEMONSETS,
        {
            "metadata": {"name": "kured", "namespace": "kube-system"},
            "status": {"desiredNumberScheduled": 4},
        },
    )
    assert set(found(well)) == {"NVIDIA's GPU Operator", "DaemonSet kube-system/kured"}


def test_what_a_stack_says_of_itself_is_shown_with_what_to_do(well):
    told = {
        "type": "NextBootSupported",
        "status": "False",
        "reason": "NoImage",
        "message": "1 node(s) (gpu-0) would have no driver image",
    }
    fine = {"type": "Adopted", "status": "True", "reason": "Adopted", "message": "nobody else"}
    well.cluster.store.change(GPU_STACKS, STACK, {"status": {"conditions": [told, fine]}})
    one = found(well)[f"stack {STACK}"]
    assert (one["check"], one["severity"], one["message"]) == ("NextBootSupported", "warning", told["message"])
    assert one["fix"].startswith("Do not reboot these nodes before there is an image")


def test_registries(well):
    well.registry.reachable = False
    assert {one["severity"] for one in found(well).values()} == {"warning"}
    well.registry.reachable = True
    well.registry.digests.pop("registry/plugin:1")
    assert found(well)["registry/plugin:1"]["message"] == "the image is not in its registry"


def test_no_api_server_is_an_error_and_no_finding(well):
    well.cluster.reachable = False
    ended = upgrader(well, "doctor")
    assert (ended.exit_code, ended.stdout) == (1, "")


class TestJobs:
    def test_jobs_that_are_well_but_for_disruptions(self, rig):
        ended = upgrader(rig, "doctor", "--jobs")
        assert ended.exit_code == 0
        assert_golden(GOLDEN / "doctor-jobs.txt", ended.stdout)

    def test_everything_is_read_where_it_stands(self, rig):
        store = rig.cluster.store
        pod = next(one for one in store.copy_all(PODS, "default") if one["metadata"]["name"].startswith("solo"))
        patch = {
            "metadata": {"labels": {"app": "solo"}, "annotations": {"gpu-upgrader.io/checkpoint-metod": "file"}},
            "spec": {"terminationGracePeriodSeconds": 10, "restartPolicy": "OnFailure"},
        }
        store.change(PODS, pod["metadata"]["name"], patch, "default")
        space = {"metadata": {"annotations": {"gpu-upgrader.io/checkpoint-timeout": "5m"}}}
        store.change(NAMESPACES, "default", space)
        selector = {"selector": {"matchLabels": {"app": "solo"}}}
        for name, spec in (("a", {"maxUnavailable": 0}), ("b", {"minAvailable": "100%"})):
            store.put(PDBS, {"metadata": {"name": name, "namespace": "default"}, "spec": selector | spec})
        shown = json.loads(upgrader(rig, "doctor", "--jobs", "--stack", "pool-a", "--output", "json").stdout)
        assert shown["looked_at"] == 2
        checks = [one["check"] for one in shown["found"] if one["subject"] == "default/Job/solo"]
        assert checks == [
            "PdbNeverAllows",
            "PdbNeverAllows",
            "TwoPdbs",
            "UnknownAnnotation",
            "GraceTooShort",
            "NoPodFailurePolicy",
            "RestartPolicy",
        ]
        assert upgrader(rig, "doctor", "--jobs").exit_code == 1

    def test_a_stack_is_named_with_jobs_only(self, rig):
        assert upgrader(rig, "doctor", "--stack", "pool-a").exit_code == 64


def test_what_doctor_reads_with_is_what_it_asks_the_api_server_about(well):
    well.cluster.uses.clear()
    assert upgrader(well, "doctor").exit_code == 0
    asked = {
        (right.verb, right.group, right.resource) for right in (*forecast_rights(access.required_rights()), *DIAGNOSES)
    }
    used = {(use.verb, use.group, use.resource) for use in well.cluster.uses if use.verb in {"get", "list"}}
    assert used - asked == set()
    own = {(right.verb, right.group, right.resource) for right in DIAGNOSES}
    assert own - used == set()
