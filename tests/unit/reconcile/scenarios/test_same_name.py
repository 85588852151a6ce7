"""A job that is made again under its name is another one: what the plan knows of the first does not count for it."""

import msgspec

from tests.support.facts import gang, node, snapshot
from tests.support.manifests import checkpoint_request, upgrade_plan
from upgrader.api.resources import JOBS
from upgrader.api.v1alpha1 import CheckpointRequest, UpgradePlan
from upgrader.core.model.fleet import Owner
from upgrader.reconcile.observe.stopped_gangs import stopped_gangs
from upgrader_dev.simulated.cluster.rig import Rig, start_training


def stopped_before(uid: str) -> CheckpointRequest:
    body = checkpoint_request()
    body["spec"] |= {"gang": "ml/Job/x", "owner": {"kind": "Job", "name": "x", "uid": uid}}
    return msgspec.convert(body | {"status": {"stoppedAt": "2026-11-21T09:00:00Z"}}, CheckpointRequest)


def test_only_the_very_job_that_was_stopped_is_not_stopped_again() -> None:
    world = snapshot([node("a")], [gang("x", "a", owner=Owner(kind="Job", name="x", uid="uid-x"))])
    plan = msgspec.convert(upgrade_plan(), UpgradePlan)
    assert stopped_gangs(plan, [stopped_before("uid-x")], world) == {"ml/Job/x"}
    assert stopped_gangs(plan, [stopped_before("uid-of-another")], world) == frozenset()


async def test_a_refusal_does_not_keep_a_new_job_of_that_name_from_being_asked() -> None:
    rig = Rig()
    revision = await start_training(rig, nodes=1, members=1)
    rig.fleet.trainers["gang"].answers = lambda pod, request, step: {
        "requestId": request,
        "podUid": pod["metadata"]["uid"],
        "step": step,
        "refused": "not now",
        "retryAfterSeconds": 86400,
    }
    rig.apply_plan("up", revision, checkpoint={"timeoutSeconds": 30, "retrySeconds": 60})
    await rig.run_until(lambda: [one.reason for one in rig.plan_now("up").status.blockers] == ["GangRefuses"])
    rig.cluster.store.remove(JOBS, "gang", "default")
    for _ in range(3):
        rig.fleet.tick()
    rig.fleet.add_job("gang", members=1, gpus=8)
    await rig.run_until(lambda: rig.is_over("up"), 900)
    assert rig.nodes_on(revision) == 1
    rig.assert_nothing_left()
