"""What people remove by force: finalizers are taken away, and the garbage collector deletes what was owned."""

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, JOBS, NODE_UPGRADES, PODS, UPGRADE_PLANS
from upgrader.core.model.phases import RequestPhase
from upgrader_dev.simulated.cluster.rig import STACK, Rig, start_training

LONG = 4 * 3600


def phase(rig: Rig) -> RequestPhase | None:
    return next((one.status.phase for one in rig.requests()), None)


def suspended(rig: Rig, job: str = "gang") -> bool:
    return bool(rig.cluster.store.find(JOBS, job, "default")["spec"]["suspend"])


def asked(rig: Rig) -> list[str]:
    pods = rig.cluster.store.copy_all(PODS, "default")
    return [pod["metadata"]["name"] for pod in pods if names.ANNOTATION_REQUEST in pod["metadata"]["annotations"]]


def strip_request(rig: Rig) -> None:
    """A person takes the finalizer away, or the namespace is restored without it."""
    (request,) = rig.requests()
    rig.cluster.store.remove(CHECKPOINT_REQUESTS, request.metadata.name, "default")


def strip_plan(rig: Rig) -> None:
    """A person takes the plan's finalizer away; the garbage collector deletes what it owns, which finalizers hold."""
    rig.cluster.store.remove(UPGRADE_PLANS, "up")
    for upgrade in rig.upgrades("up"):
        rig.cluster.store.mark_deleted(NODE_UPGRADES, upgrade.metadata.name)
    for request in rig.requests():
        rig.cluster.store.mark_deleted(CHECKPOINT_REQUESTS, request.metadata.name, "default")


def strip_stack(rig: Rig) -> None:
    """A stack has no finalizer of the operator: a deleted stack is gone."""
    rig.cluster.store.remove(GPU_STACKS, STACK)


async def stopped(rig: Rig, *, nodes: int = 2) -> str:
    """A plan has stopped its gang; its revision."""
    revision = await start_training(rig, nodes=nodes)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: phase(rig) is RequestPhase.STOPPED)
    return revision


async def silent(rig: Rig) -> str:
    """A plan has asked both members of its gang, and neither answers; its revision."""
    revision = await start_training(rig)
    rig.fleet.trainers["gang"].answers = lambda _pod, _request, _step: None
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: len(asked(rig)) == 2)
    return revision
