"""A value that cannot be read keeps nobody from anything but the gang, or the node, that it stands on."""

from typing import Any

import pytest

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PODS
from upgrader.core.model.phases import PlanPhase, RequestPhase
from upgrader_dev.simulated.cluster.fleet import RESOURCE
from upgrader_dev.simulated.cluster.rig import Rig, start_training

NESTED = "[" * 100_000
DIGITS = "9" * 5000


def stranger(rig: Rig, annotations: dict[str, str], spec: dict[str, Any] | None = None) -> None:
    """A Job of another namespace whose pod asks for more GPUs than a node has."""
    meta = {"name": "odd", "namespace": "elsewhere", "uid": "uid-odd", "annotations": annotations}
    job = {"parallelism": 1, "template": {"metadata": {}, "spec": {"containers": []}}, **(spec or {})}
    started = {"startTime": "2026-11-21T09:00:00Z"}
    rig.cluster.store.put(JOBS, {"metadata": meta, "spec": job, "status": started})
    uid = rig.cluster.store.find(JOBS, "odd", "elsewhere")["metadata"]["uid"]
    owner = {"kind": "Job", "apiVersion": "batch/v1", "name": "odd", "uid": uid, "controller": True}
    container = {"name": "c", "resources": {"limits": {RESOURCE: "64"}}}
    rig.cluster.store.put(
        PODS,
        {
            "metadata": {
                **meta,
                "name": "odd-0",
                "uid": "uid-odd-0",
                "labels": {"index": "0"},
                "ownerReferences": [owner],
            },
            "spec": {"containers": [container]},
            "status": {"phase": "Pending", **started},
        },
    )


ODD: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "a runtime of 27 million years": ({names.ANNOTATION_EXPECTED_RUNTIME: "9999999999d"}, {}),
    "more digits than a number has": ({names.ANNOTATION_MIN_RUNTIME: DIGITS, names.ANNOTATION_REQUEST: DIGITS}, {}),
    "the year 1, east of Greenwich": ({names.ANNOTATION_EXPECTED_COMPLETION: "0001-01-01T00:00:00+14:00"}, {}),
    "a command that is nested too deep": ({names.ANNOTATION_METHOD: "exec", names.ANNOTATION_COMMAND: NESTED}, {}),
    "a record of a stop that is nested too deep": ({names.ANNOTATION_STOPPED: f'{{"x":{NESTED}'}, {}),
    "a total with too many digits": ({names.ANNOTATION_GROUP_TOTAL: DIGITS}, {}),
    "a deadline that means never": ({}, {"activeDeadlineSeconds": 9223372036854775807}),
}


@pytest.mark.parametrize(("annotations", "spec"), ODD.values(), ids=ODD)
async def test_an_odd_job_of_another_namespace_stops_no_plan(annotations: dict[str, str], spec: dict[str, Any]) -> None:
    rig = Rig()
    revision = await start_training(rig, members=1)
    stranger(rig, {names.ANNOTATION_METHOD: "file", **annotations}, spec)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)
    assert rig.fleet.trainers["gang"].lost == 0


async def test_an_answer_that_is_nested_too_deep_is_none_and_its_gang_alone_is_released() -> None:
    rig = Rig()
    await pool(rig, nodes=2, images=("1.0", "2.0"))
    for name in ("aa", "bb"):
        rig.fleet.add_job(name, members=1)
    await rig.run_until(lambda: min((one.step for one in rig.fleet.trainers.values()), default=0) > 5)
    revision = rig.apply_stack(rig.make_spec("2.0"))
    rig.fleet.trainers["aa"].answers = lambda *_: f'{{"x":{NESTED}'.encode()
    rig.apply_plan("up", revision)
    phases = lambda: {one.spec.owner.name: one.status.phase for one in rig.requests()}  # noqa: E731
    await rig.run_until(lambda: phases().get("bb") is RequestPhase.RESTORED, seconds=1800)
    assert rig.nodes_on(revision) == 1
    assert phases()["aa"] in {RequestPhase.REQUESTED, RequestPhase.WITHDRAWN}
    assert rig.fleet.trainers["aa"].stops == 0


async def test_a_node_whose_settings_cannot_be_read_is_blocked_until_they_are_corrected_and_the_others_go_on() -> None:
    rig = Rig()
    revision = await start_training(rig, members=1)
    (pod,) = [one for one in rig.cluster.store.copy_all(PODS) if one["metadata"]["name"].startswith("gang")]
    (idle,) = {one["metadata"]["name"] for one in rig.nodes()} - {pod["spec"]["nodeName"]}
    rig.cluster.store.change(NODES, idle, {"metadata": {"annotations": {names.ANNOTATION_KUBELET: "not json"}}})
    await rig.run_second()
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1)
    assert [(one.subject, one.reason) for one in rig.plan_now("up").status.blockers] == [(idle, "NodeUnreadable")]
    assert rig.plan_now("up").status.blockers[0].message == (
        f"Annotation gpu-upgrader.io/kubelet-settings of node {idle} cannot be read: 'not json' is not a JSON object "
        "of strings. Correct it, or remove it if the kubelet has no settings of a stack."
    )
    rig.cluster.store.change(NODES, idle, {"metadata": {"annotations": {names.ANNOTATION_KUBELET: None}}})
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)
