"""Inputs of the lints: how many evictions a PodDisruptionBudget can ever allow, and the examples that we ship."""

import asyncio

import msgspec
import pytest
import yaml

from tests.support.repository import ROOT
from upgrader.api.resources import JOBS, PODS
from upgrader.api.workloads import Budget
from upgrader.cli.doctor.job_lints import lint_jobs, most_at_once
from upgrader.core.doctor.advice import has_problem

SYNC_FAILED = {"conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}]}


@pytest.mark.parametrize(
    ("spec", "status", "most"),
    [
        ({"maxUnavailable": 0}, {}, 0),
        ({"maxUnavailable": 2}, {}, 2),
        ({"maxUnavailable": "0%"}, {}, 0),
        ({"maxUnavailable": "30%"}, {}, None),
        ({"maxUnavailable": "30%"}, {"expectedPods": 4}, 2),
        ({"minAvailable": "100%"}, {}, 0),
        ({"minAvailable": 3}, {}, None),
        ({"minAvailable": 3}, {"expectedPods": 4}, 1),
        ({"minAvailable": 9}, {"expectedPods": 4}, 0),
        ({"minAvailable": "50%"}, {"expectedPods": 3}, 1),
        ({"minAvailable": "half"}, {"expectedPods": 3}, None),
        ({}, {"expectedPods": 3}, None),
        ({"maxUnavailable": 2}, SYNC_FAILED, 0),
    ],
)
def test_most_at_once(spec, status, most):
    assert most_at_once(msgspec.convert({"metadata": {"name": "x"}, "spec": spec, "status": status}, Budget)) == most


@pytest.mark.parametrize("name", ["trainer-single", "trainer-gang"])
def test_the_jobs_that_we_show_to_others_have_no_problem_of_their_own(rig, name):
    manifests = yaml.safe_load_all((ROOT / f"docs/examples/{name}.yaml").read_text())
    job = rig.cluster.store.put(JOBS, next(one for one in manifests if one["kind"] == "Job"))
    template = job["spec"]["template"]
    owner = {"kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}
    for number in range(job["spec"]["parallelism"]):
        meta = {"name": f"{name}-{number}", "namespace": "default", "ownerReferences": [owner]}
        pod = {"metadata": template["metadata"] | meta, "spec": template["spec"] | {"nodeName": "gpu-3"}}
        rig.cluster.store.put(PODS, pod | {"status": {"phase": "Running"}})
    report = asyncio.run(lint_jobs(rig.context, "pool-a"))
    found = [one for one in report.found if one.subject == f"default/Job/{name}"]
    assert report.looked_at == 3
    assert not has_problem(found)
    # In a demonstration they end quickly and are killed often: they have no grace period and policy as for real work.
    assert {one.check for one in found} <= {"GraceTooShort", "NoPodFailurePolicy"}
