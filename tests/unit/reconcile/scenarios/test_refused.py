"""What others do to us in the middle of a rollout: refuse, delete, come late. Nobody stays stopped for it."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, JOBS, NODE_UPGRADES, PDBS, PODS, UPGRADE_PLANS
from upgrader.core.errors import ClusterError, ConflictError, UnreachableError
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader.kube.refusals import response_error
from upgrader.reconcile.gpu_stack import stack_reconciler
from upgrader.reconcile.runtime.context import REHEARSED_AGAIN
from upgrader.reconcile.upgrade_plan import plan_reconciler
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig, start_training

QUICK = {"timeoutSeconds": 30, "retrySeconds": 86400}
FORBIDDEN = "the API server does not allow this"


@pytest.fixture
def rig() -> Rig:
    return Rig()


def job(rig: Rig, name: str = "gang") -> Object:
    return rig.cluster.store.find(JOBS, name, "default")


def phase_of(rig: Rig, gang: str) -> RequestPhase | None:
    return next((one.status.phase for one in rig.requests() if one.spec.owner.name == gang), None)


async def two_gangs(rig: Rig) -> str:
    """Two nodes with a gang each; the revision that is next."""
    await pool(rig, nodes=2, images=("1.0", "2.0"))
    for name in ("aa", "bb"):
        rig.fleet.add_job(name, members=1)
    await rig.run_until(lambda: min((one.step for one in rig.fleet.trainers.values()), default=0) > 5)
    return rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))


# ------------------------------------------------------------------------------------------------------ refusals


def cannot_be_read(rig: Rig) -> None:
    """Exec into one gang's pods is refused."""
    read = rig.cluster.read_file

    async def refused(pod, container, path):
        if pod.metadata.labels.get("job") == "aa":
            raise ClusterError(FORBIDDEN)
        return await read(pod, container, path)

    rig.cluster.read_file = refused


def cannot_be_asked(rig: Rig) -> None:
    """No request may be made in one gang's namespace."""

    def refused(write):
        if write.kind == "CheckpointRequest" and write.verb == "create" and "aa" in write.name:
            raise ClusterError(FORBIDDEN)

    rig.cluster.before_write = refused


def cannot_be_looked_up(rig: Rig) -> None:
    """One gang's owner may not be read by us."""
    get = rig.cluster.get

    async def refused(kind, name, namespace=""):
        if kind.kind == "Job" and name == "aa":
            raise ClusterError(FORBIDDEN)
        return await get(kind, name, namespace)

    rig.cluster.get = refused


@pytest.mark.parametrize("refusal", [cannot_be_read, cannot_be_asked, cannot_be_looked_up])
async def test_one_gangs_refusal_keeps_nobody_else_stopped(rig: Rig, refusal: Callable[[Rig], None]) -> None:
    rig.apply_plan("up", await two_gangs(rig), checkpoint=QUICK)
    refusal(rig)
    await rig.run_until(lambda: phase_of(rig, "bb") is RequestPhase.RESTORED)
    assert {name: one.stops for name, one in rig.fleet.trainers.items()} == {"aa": 0, "bb": 1}
    assert FORBIDDEN in rig.describe_state(), "a person reads why it waits"
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None, 4000, stride=20)
    assert {name: one.lost for name, one in rig.fleet.trainers.items()} == {"aa": 0, "bb": 0}
    rig.assert_nothing_left()


async def test_an_abort_ends_although_a_gang_cannot_be_read(rig: Rig) -> None:
    rig.apply_plan("up", await two_gangs(rig))
    await rig.run_until(lambda: phase_of(rig, "aa") is RequestPhase.RESTARTING)
    cannot_be_read(rig)
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: rig.is_over("up"), 4000, stride=20)
    rig.assert_nothing_left()


def would_refuse(rig: Rig, pods: str) -> list[str]:
    """The API server takes no pod whose name begins so; gives the names that it was shown."""
    shown = []

    def refused(write):
        if write.kind == "Pod" and write.name.startswith(pods) and write.verb in {"rehearse", "create"}:
            shown.append(write.name)
            said = {"message": f'pods "{write.name}" is forbidden: no RuntimeClass'}
            raise response_error(403, {}, msgspec.json.encode(said), "POST /pods")

    rig.cluster.before_write = refused
    return shown


@pytest.mark.parametrize(
    "pods", ["validate-gpu-1", "revalidate-gpu-0", "upgrade-gpu-0", "device-plugin-", "driver-"], ids=str
)
async def test_what_the_api_server_would_refuse_later_is_found_before_anybody_is_asked(rig: Rig, pods: str) -> None:
    rig.apply_plan("up", await start_training(rig), checkpoint=QUICK)
    shown = would_refuse(rig, pods)
    await rig.run_until(lambda: bool(shown))
    for _ in range(20):
        await rig.run_second()
    blocked = [one.status for one in rig.upgrades("up") if one.status.conditions]
    assert {(one.phase, one.conditions[0].reason) for one in blocked} == {(NodePhase.PREPARING, "Refused")}
    assert "is forbidden: no RuntimeClass" in blocked[0].message
    assert (rig.requests(), rig.fleet.trainers["gang"].stops) == ([], 0)

    rig.cluster.before_write = None  # somebody put it right
    await rig.run_until(lambda: rig.is_over("up"))
    assert {one.status.phase for one in rig.upgrades("up")} == {NodePhase.SUCCEEDED}
    rig.assert_nothing_left()


async def test_what_was_refused_is_asked_again_in_a_while_and_not_each_second(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig), checkpoint=QUICK)
    shown = would_refuse(rig, "validate-gpu-1")
    await rig.run_until(lambda: bool(shown))
    shown.clear()
    for _ in range(60):
        await rig.run_second()
    assert 3 <= len(shown) <= 60 // REHEARSED_AGAIN.total_seconds()


async def test_a_rollback_goes_without_a_way_back_to_what_it_leaves(rig: Rig) -> None:
    revision = await start_training(rig)
    (first,) = {node["metadata"]["labels"][names.LABEL_REVISION] for node in rig.nodes()}
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.nodes_on(revision) == 2)
    shown = would_refuse(rig, "revalidate-")
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "RolledBack"}})
    await rig.run_until(lambda: rig.nodes_on(first) == 2, 3000)
    assert {one.rpartition("-")[0] for one in shown} == {"revalidate-gpu-0", "revalidate-gpu-1"}
    assert rig.fleet.trainers["gang"].lost == 0


async def test_what_the_api_server_refuses_until_the_end_of_preparing_is_told(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig), checkpoint=QUICK)
    would_refuse(rig, "validate-gpu-1")
    await rig.run_until(
        lambda: any(one.status.phase is NodePhase.FAILED for one in rig.upgrades("up")), 4000, stride=20
    )
    failed = {one.spec.node.name: one.status for one in rig.upgrades("up")}["gpu-1"]
    assert failed.reason == "NotPrepared"
    assert failed.message.startswith("Preparing exceeded its deadline: the API server would refuse pod validate-gpu-1-")
    assert failed.message.endswith("is forbidden: no RuntimeClass")
    assert (rig.requests(), rig.fleet.trainers["gang"].stops) == ([], 0)
    rig.assert_nothing_left()


@pytest.mark.parametrize("aborted", [True, False])
async def test_a_job_that_takes_no_patch_trains_on_and_the_plan_goes_on(rig: Rig, *, aborted: bool) -> None:
    rig.apply_plan("up", await start_training(rig), checkpoint=QUICK)

    def refused(write):
        if write.kind == "Job" and write.verb == "merge" and write.name == "gang":
            raise ClusterError(FORBIDDEN)

    rig.cluster.before_write = refused
    await rig.run_until(lambda: phase_of(rig, "gang") is RequestPhase.STOPPING)
    if aborted:
        rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None, 6000, stride=10)
    assert phase_of(rig, "gang") is RequestPhase.WITHDRAWN
    assert rig.fleet.trainers["gang"].stops == 0
    rig.assert_nothing_left()


async def test_no_answer_from_the_api_server_while_asking_lets_nobody_go(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    failed = []

    def away(write):
        if write.kind == "CheckpointRequest" and write.verb == "create" and not failed:
            failed.append(write)
            raise UnreachableError("the API server answered 503")

    rig.cluster.before_write = away
    await rig.run_until(lambda: rig.is_over("up"))
    assert len(failed) == 1
    assert {one.status.phase for one in rig.upgrades("up")} == {NodePhase.SUCCEEDED}


async def test_a_plan_that_can_never_start_keeps_no_other_waiting(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("never", "0000000000")
    await rig.run_second()
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED
    assert rig.plan_now("never").status.phase is PlanPhase.PROPOSED


async def test_a_gang_that_is_blocked_since_its_batch_began_is_not_asked(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig), checkpoint=QUICK)
    await rig.run_until(lambda: any(one.status.phase is NodePhase.PREPARING for one in rig.upgrades("up")))
    selector = {"matchLabels": {"job": "gang"}}
    budget = {"metadata": {"name": "keep", "namespace": "default"}, "spec": {"selector": selector}}
    rig.cluster.store.put(PDBS, budget | {"status": {"disruptionsAllowed": 0}})
    await rig.run_until(
        lambda: bool(rig.plan_now("up").status.batches) and bool(rig.plan_now("up").status.batches[0].ended_at),
        4000,
        stride=20,
    )
    assert rig.requests() == []
    assert {one.status.reason for one in rig.upgrades("up")} == {"NotAcknowledged"}
    assert "PodDisruptionBudget keep" in rig.upgrades("up")[0].status.message
    assert rig.fleet.trainers["gang"].stops == 0
    rig.assert_nothing_left()


async def test_half_a_gang_is_not_asked(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig), checkpoint=QUICK)
    await rig.run_until(lambda: any(one.status.phase is NodePhase.PREPARING for one in rig.upgrades("up")))
    members = [one for one in rig.cluster.store.copy_all(PODS) if one["metadata"]["labels"].get("job") == "gang"]
    rig.fleet.backing_off = {"gang"}
    rig.cluster.store.remove(PODS, members[1]["metadata"]["name"], "default")
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None, 4000, stride=20)
    assert rig.fleet.trainers["gang"].stops == 0
    assert "members of default/Job/gang run; only complete gangs" in rig.upgrades("up")[0].status.message
    rig.assert_nothing_left()


# ------------------------------------------------------------------------------------------------------ deletions


async def test_a_plan_that_is_deleted_with_all_it_owns_restarts_its_gang_first(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: phase_of(rig, "gang") is RequestPhase.STOPPED)
    rig.cluster.store.mark_deleted(UPGRADE_PLANS, "up")
    for upgrade in rig.upgrades("up"):
        rig.cluster.store.mark_deleted(NODE_UPGRADES, upgrade.metadata.name)
    for request in rig.requests():
        rig.cluster.store.mark_deleted(CHECKPOINT_REQUESTS, request.metadata.name, "default")
    await rig.run_until(lambda: not rig.upgrades("up") and not rig.requests())
    step = rig.fleet.trainers["gang"].step
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > step, 60)
    assert rig.cluster.store.find(UPGRADE_PLANS, "up") is None
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_upgrades_that_a_person_deletes_end_first(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.UPGRADING})
    for upgrade in rig.upgrades("up"):
        rig.cluster.store.mark_deleted(NODE_UPGRADES, upgrade.metadata.name)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED
    assert rig.nodes_on(revision) == 2
    await rig.run_until(lambda: not rig.upgrades("up"), 60)
    rig.assert_nothing_left()


# ------------------------------------------------------------------------------------------------------ late writes


async def test_a_stop_that_was_given_up_cannot_land_any_more(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    merge, late = rig.cluster.merge, []

    async def slow(kind, meta, patch, subresource=""):
        if kind.kind == "Job" and patch.get("spec", {}).get("suspend"):
            late.append((meta, patch))
            rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
            raise UnreachableError("no response from the API server")
        return await merge(kind, meta, patch, subresource)

    rig.cluster.merge = slow
    await rig.run_until(lambda: rig.is_over("up"))
    meta, patch = late[0]
    with pytest.raises(ConflictError):
        await merge(JOBS, meta, patch)
    assert job(rig)["spec"]["suspend"] is False
    assert not [name for name in job(rig)["metadata"].get("annotations", {}) if name.startswith(names.GROUP + "/stop")]


async def test_two_approved_plans_of_one_stack_go_one_after_the_other(rig: Rig) -> None:
    revision = await start_training(rig)
    await stack_reconciler.reconcile_stack(rig.context, "pool-a", rig.sightings)
    rig.apply_plan("one", revision)
    rig.apply_plan("two", revision)
    for name in ("get", "list", "merge", "create"):
        setattr(rig.cluster, name, _yielding(getattr(rig.cluster, name)))
    for _ in range(8):
        steps = (plan_reconciler.reconcile_plan(rig.context, name) for name in ("one", "two"))
        await asyncio.gather(*steps, return_exceptions=True)
        rig.fleet.tick()
    assert [rig.plan_now(name).status.phase for name in ("one", "two")] == [PlanPhase.RUNNING, PlanPhase.PROPOSED]
    assert rig.upgrades("two") == []
    assert rig.plan_now("two").status.message == "waiting for plan one of the same stack"


def _yielding(act):
    """As a real API server: others get on while it is asked."""

    async def asked(*arguments, **named):
        await asyncio.sleep(0)
        return await act(*arguments, **named)

    return asked
