"""What the API server is shown before a node upgrade is what it is given in it."""

from itertools import pairwise

import pytest

from upgrader.api.resources import DAEMONSETS, JOBS, NODES, PODS
from upgrader.api.v1alpha1 import NodeState
from upgrader.core.errors import UnreachableError
from upgrader.reconcile.runtime.context import REHEARSED_AGAIN
from upgrader_dev.simulated.cluster.rig import ACTIVE_SECONDS, Rig, start_training

TRIES = 3


@pytest.fixture
def shown(rig: Rig):
    """Pods that were rehearsed, by name."""
    found, rehearse = {}, rig.cluster.rehearse

    async def recorded(kind, body):
        await rehearse(kind, body)
        found[body["metadata"]["name"]] = body

    rig.cluster.rehearse = recorded
    return found


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def made(rig: Rig):
    """Pods that the operator created, and the pod templates of its Jobs and DaemonSets, by name."""
    found, create = {}, rig.cluster.create

    async def recorded(kind, body):
        result = await create(kind, body)
        if kind in (PODS, JOBS):
            found[body["metadata"]["name"]] = body
        return result

    rig.cluster.create = recorded
    return found


def bare(pod):
    """What of a pod is known before somebody makes it."""
    meta = {key: pod["metadata"].get(key, {}) for key in ("labels", "annotations")}
    return meta, {key: value for key, value in pod["spec"].items() if key != "nodeName"}


async def test_each_pod_of_a_node_upgrade_was_shown_as_it_was_made(rig: Rig, shown, made) -> None:
    revision = await start_training(rig, nodes=1, members=1)
    shown.clear()
    made.clear()
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.nodes_on(revision) == 1
    (upgrade,) = rig.upgrades("up")
    sets = {one["metadata"]["name"]: one["spec"]["template"] for one in rig.cluster.store.copy_all(DAEMONSETS)}
    jobs = {name: one["spec"]["template"] for name, one in made.items() if "template" in one["spec"]}
    pods = {name: one for name, one in made.items() if name.startswith("validate-")}
    whole = {name: bare(one) for name, one in (sets | jobs | pods).items() if name in shown}
    assert whole == {name: bare(one) for name, one in shown.items() if not name.startswith("revalidate-")}
    target: NodeState = upgrade.spec.target
    assert {f"driver-{target.driver_key}", f"device-plugin-{target.plugin_key}", *jobs, *pods} <= set(whole)
    node = rig.cluster.store.find(NODES, "gpu-0")["metadata"]["name"]
    assert {one["spec"]["nodeName"] for one in shown.values()} == {node}
    owners = [reference["uid"] for one in shown.values() for reference in one["metadata"]["ownerReferences"]]
    assert owners == [upgrade.metadata.uid] * len(shown), "a policy may take no pod that belongs to nobody"


async def test_what_was_not_answered_is_asked_again_after_a_pause_and_for_one_of_all_upgrades(rig: Rig) -> None:
    revision = await start_training(rig, nodes=4, members=4)
    asked, rehearse = [], rig.cluster.rehearse

    async def unanswered(kind, body):
        asked.append(rig.seconds)
        if len(asked) <= TRIES:
            raise UnreachableError("the API server answered 500")
        await rehearse(kind, body)

    rig.cluster.rehearse = unanswered
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    pauses = [after - before for before, after in pairwise(asked[: TRIES + 1])]
    least = REHEARSED_AGAIN.total_seconds()
    assert all(least <= pause <= least + ACTIVE_SECONDS for pause in pauses), pauses
    assert rig.nodes_on(revision) == 4
