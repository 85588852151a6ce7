"""CheckpointRequests with a plan's label that the plan did not make: nothing is done for them, and nothing waits."""

from typing import Any

import pytest

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, JOBS, PODS, UPGRADE_PLANS
from upgrader.core.model.phases import PlanPhase, RequestPhase
from upgrader.core.replies import Reply
from upgrader.core.timing import format_time
from upgrader.reconcile.render.custom_objects import LABEL_BATCH, request_name
from upgrader_dev.simulated.cluster.rig import Rig, start_training

TENANT = "mallory"
GANG = f"{TENANT}/Job/x"
ENDPOINT = ":8080/release"


@pytest.fixture
def rig() -> Rig:
    return Rig()


def phase(rig: Rig) -> RequestPhase | None:
    return next((one.status.phase for one in rig.requests() if one.spec.gang == "default/Job/gang"), None)


def owner(rig: Rig) -> dict[str, Any]:
    uid = rig.plan_now("up").metadata.uid
    return {
        "apiVersion": "gpu-upgrader.io/v1alpha1",
        "kind": "UpgradePlan",
        "name": "up",
        "uid": uid,
        "controller": True,
    }


def forge(rig: Rig, *, name: str = "forged", group: str = "", gang: str = GANG, batch: str = "1", **meta: Any) -> None:
    """A request as a tenant may make it, for a Job and a pod of its own that would be asked by HTTP."""
    job = {"metadata": {"name": "x", "namespace": TENANT}, "spec": {"suspend": False, "parallelism": 0}}
    uid = rig.cluster.store.put(JOBS, job)["metadata"]["uid"]
    labels = {"batch.kubernetes.io/controller-uid": uid}
    pod = {
        "metadata": {"name": "x-0", "namespace": TENANT, "labels": labels},
        "spec": {"nodeName": "gpu-0", "containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }
    pod_uid = rig.cluster.store.put(PODS, pod)["metadata"]["uid"]
    group = group or rig.plan_now("up").status.batches[0].groups[0].name
    now = rig.cluster.clock.now()
    rig.cluster.store.put(
        CHECKPOINT_REQUESTS,
        {
            "metadata": {
                "name": name,
                "namespace": TENANT,
                "labels": {names.LABEL_PLAN: "up", LABEL_BATCH: batch, names.LABEL_GROUP: group},
                **meta,
            },
            "spec": {
                "gang": gang,
                "plan": "up",
                "group": group,
                "method": "http",
                "endpoint": ENDPOINT,
                "owner": {"kind": "Job", "name": "x", "uid": uid},
                "members": [{"pod": "x-0", "uid": pod_uid, "node": "gpu-0", "container": "c"}],
                "requestId": int(now.timestamp()),
                "askedAt": format_time(now),
                "parkSeconds": 600,
            },
        },
    )


def hers(rig: Rig) -> list[RequestPhase]:
    return [one.status.phase for one in rig.requests() if one.metadata.namespace == TENANT]


FORGED = {
    "by label": {},
    "with a batch that is no number": {"batch": "x"},
    "with a batch that is longer than Python reads": {"batch": "9" * 60},
    "in no upgrade group": {"group": "c-none"},
    "with the name that the plan would give": {"name": request_name("up", 1, GANG)},
}


@pytest.mark.parametrize("made_by_plan", [False, True], ids=["", "with the plan's uid"])
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_a_request_that_the_plan_did_not_make_is_not_driven_and_named_in_its_status(
    rig: Rig, forged: dict[str, str], *, made_by_plan: bool
) -> None:
    calls: list[str] = []

    def server(pod: Any, method: str, endpoint: str, body: bytes) -> Reply:
        calls.append(f"{method} {pod.metadata.namespace} {endpoint}")
        return Reply(status=202, body=b"", retry_after_seconds=None)

    rig.cluster.server = server
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: phase(rig) is RequestPhase.STOPPED)
    forge(rig, **forged, **({"ownerReferences": [owner(rig)]} if made_by_plan else {}))
    await rig.run_second()
    assert rig.plan_now("up").status.ignored_requests == [f"{TENANT}/{forged.get('name', 'forged')}"]
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)
    assert (hers(rig), calls) == ([RequestPhase.REQUESTED], [])
    rig.assert_nothing_left()


async def test_a_request_in_another_namespace_than_its_gang_is_not_driven(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: phase(rig) is RequestPhase.STOPPED)
    gang = "default/Job/gang"
    forge(rig, name=request_name("up", 1, gang), gang=gang, ownerReferences=[owner(rig)])
    await rig.run_until(lambda: rig.is_over("up"))
    assert hers(rig) == [RequestPhase.REQUESTED]
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED


async def test_an_abort_does_not_wait_for_it(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: phase(rig) is RequestPhase.STOPPED)
    forge(rig)
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.ABORTED
    rig.assert_nothing_left()


async def test_its_namespace_can_be_deleted_while_it_carries_our_finalizer(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: phase(rig) is RequestPhase.STOPPED)
    forge(rig, finalizers=[names.FINALIZER])
    rig.cluster.store.mark_deleted(CHECKPOINT_REQUESTS, "forged", TENANT)
    await rig.run_until(lambda: not hers(rig), 10)


async def test_no_more_than_ten_are_named(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: phase(rig) is RequestPhase.STOPPED)
    for number in range(12):
        forge(rig, name=f"forged-{number:02}")
    await rig.run_second()
    assert rig.plan_now("up").status.ignored_requests == [f"{TENANT}/forged-{number:02}" for number in range(10)]
    await rig.run_until(lambda: rig.is_over("up"))


async def test_a_gang_whose_request_was_replaced_by_a_forged_one_is_restarted(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: phase(rig) is RequestPhase.STOPPED)
    (request,) = rig.requests()
    found = rig.cluster.store.find(CHECKPOINT_REQUESTS, request.metadata.name, "default")
    rig.cluster.store.remove(CHECKPOINT_REQUESTS, request.metadata.name, "default")
    found["metadata"].pop("ownerReferences")
    rig.cluster.store.put(CHECKPOINT_REQUESTS, found)
    await rig.run_until(lambda: rig.is_over("up"), 4 * 3600, stride=5)
    assert rig.cluster.store.find(JOBS, "gang", "default")["spec"]["suspend"] is False
    rig.assert_nothing_left()
