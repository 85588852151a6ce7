"""Rules of a stack about who belongs together, and owners that cannot be read, in the whole controller."""

import contextlib

from upgrader.api.resources import GPU_STACKS, JOBS, PODS
from upgrader.core.errors import ClusterError, ConfigurationError
from upgrader.core.model.phases import PlanPhase, RequestPhase
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader.reconcile.upgrade_plan import plan_reconciler
from upgrader_dev.simulated.cluster.rig import STACK, Rig, start_training

REFUSED = ClusterError("the API server does not allow this", details="GET /apis/jobset.x-k8s.io: jobsets is forbidden")


def forbid(rig: Rig, kind: str) -> None:
    """Lists of a kind are refused from now on."""
    allowed = rig.cluster.list

    async def refusing(wanted, *args, **options):
        if wanted.kind == kind:
            raise REFUSED
        return await allowed(wanted, *args, **options)

    rig.cluster.list = refusing


async def test_an_expression_that_is_none_is_said_in_the_stack_and_changes_nothing():
    rig = Rig()
    revision = await start_training(rig)
    rig.cluster.store.change(GPU_STACKS, STACK, {"spec": {"gangs": [{"regex": "run-("}]}})
    rig.apply_plan("up", revision)

    def told():
        return next((one.status, one.message) for one in rig.stack_now().status.conditions if one.type == "Valid")

    for _ in range(20):
        with contextlib.suppress(ConfigurationError):  # as the loops do: the plan cannot be forecast
            await rig.run_second()
    assert told()[0] == "False"
    assert told()[1].startswith("regex 'run-(' of spec.gangs cannot be used")
    assert rig.plan_now("up").status.phase is PlanPhase.PROPOSED
    rig.cluster.store.change(GPU_STACKS, STACK, {"spec": {"gangs": [{"regex": "gang-.*"}]}})
    await rig.run_until(lambda: rig.is_over("up"), 3000)
    assert told()[0] == "True"
    assert [one.spec.gang for one in rig.requests()] == ["default/name/gang-.*"]
    rig.assert_nothing_left()


def request(rig: Rig) -> RequestPhase | None:
    return next((one.status.phase for one in rig.requests() if one.spec.gang == "default/Job/gang"), None)


async def test_what_was_begun_ends_also_where_owners_cannot_be_read_any_more():
    rig = Rig()
    rig.cluster.install(*OWNERS)
    revision = await start_training(rig, nodes=3)
    rig.fleet.add_job("mute", method="api")  # nobody answers for it, so that its node stays Prepared
    await rig.run_until(lambda: all(pod["spec"].get("nodeName") for pod in rig.cluster.store.copy_all(PODS)))
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: request(rig) is RequestPhase.STOPPED)
    forbid(rig, "JobSet")
    for _ in range(600):
        await plan_reconciler.reconcile_plan(rig.context, "up")
        rig.fleet.tick()
        if request(rig) is RequestPhase.RESTORED:
            break
    assert request(rig) is RequestPhase.RESTORED, rig.describe_state()
    assert rig.cluster.store.find(JOBS, "gang", "default")["spec"]["suspend"] is False
