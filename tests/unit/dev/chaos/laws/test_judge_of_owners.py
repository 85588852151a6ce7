"""The judge of chaos runs on gangs whose owner is not the Job that makes their pods: of JobSet, and of Kueue."""

import pytest

from tests.support.written_log import NAMESPACE, RECORD, Log, acknowledges, request, upgrade
from upgrader_dev.chaos.laws.journal import Author

KINDS = {
    "JobSet": ("jobset.x-k8s.io/v1alpha2", {"suspend": False}, {"suspend": True}),
    "Workload": ("kueue.x-k8s.io/v1beta1", {"active": True}, {"active": False}),
}


@pytest.fixture
def log():
    return Log()


def reference(kind, name):
    return {"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def owned(log, kind, *, off=False, by=Author.WORLD):
    """An owner of a kind, and the Job that makes the pods: below a JobSet, beside a Workload."""
    api, on, switched_off = KINDS[kind]
    above, below = ([], [reference("JobSet", "top")]) if kind == "JobSet" else ([reference("Job", "gang")], [])
    annotations = RECORD if off else {}
    meta = {"annotations": annotations, "ownerReferences": above}
    log.put("Job", "gang", api="batch/v1", metadata={"ownerReferences": below}, spec={"suspend": off})
    log.put(kind, "top", by=by, api=api, metadata=meta, spec=switched_off if off else on)


def pod(log, name, on="gpu-0"):
    annotations = {"gpu-upgrader.io/checkpoint-method": "file", "gpu-upgrader.io/checkpoint-request": "7"}
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    meta = {"ownerReferences": [reference("Job", "gang")], "annotations": annotations}
    log.put("Pod", name, metadata=meta, spec={"nodeName": on, "containers": [container]}, status={"phase": "Running"})


def asked(log):
    upgrade(log, "Draining")
    request(log, group="c-1", owner={"uid": "uid-top"})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("acknowledged", [True, False])
def test_law_1_its_pods_are_those_of_its_job(log, kind, acknowledged):
    owned(log, kind)
    pod(log, "gang-0")
    if acknowledged:
        acknowledges(log)
    asked(log)
    owned(log, kind, off=True, by=Author.CONTROLLER)
    assert log.laws == ([] if acknowledged else [1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("approved", [True, False])
def test_law_5_it_may_run_on_mixed_drivers_where_the_approval_allows_to_restart_it_anywhere(log, kind, approved):
    limits = {"placementUnguaranteed": approved}
    plan = {"approval": {"limits": limits}, "strategy": {"maxUnavailable": 16}}
    log.put("UpgradePlan", "up", namespace="", spec=plan)
    for name, version in (("gpu-0", "1.0"), ("gpu-1", "2.0")):
        labels = {"gpu-upgrader.io/component": "driver"}
        meta = {"labels": labels, "annotations": {"gpu-upgrader.io/readable": f"sim {version} 6.1.0"}}
        log.put(
            "Pod",
            f"driver-{name}",
            namespace=NAMESPACE,
            metadata=meta,
            spec={"nodeName": name},
            status={"phase": "Running"},
        )
    owned(log, kind)
    asked(log)
    owned(log, kind, off=True, by=Author.CONTROLLER)
    owned(log, kind, by=Author.CONTROLLER)
    pod(log, "gang-0")
    pod(log, "gang-1", on="gpu-1")
    assert log.laws == ([] if approved else [5])
