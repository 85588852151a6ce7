"""The judge of chaos runs where there are two pools, each with a stack and a plan, or a stack that is gone."""

from datetime import timedelta

import pytest

from tests.support.written_log import NAMESPACE, TAINT, Log
from upgrader_dev.chaos.laws.journal import Author
from upgrader_dev.simulated.cluster.ports import START

PLANS = {"up": "pool-a", "up-c": "pool-c"}


@pytest.fixture
def log():
    """A node with eight GPUs in each of two pools."""
    found = Log()
    for pool in ("a", "c"):
        found.put("GpuStack", f"pool-{pool}", namespace="", spec={"nodeSelector": {"pool": pool}})
        node(found, pool)
    return found


def node(log, pool, *, by=Author.WORLD, taken=False, **spec):
    """The node of a pool; as a plan has closed it, where it is taken."""
    annotations = {"gpu-upgrader.io/claimed-by": f"uid-v-{pool}"} if taken else {}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    status |= {part: {"nvidia.com/gpu": "8"} for part in ("capacity", "allocatable")}
    meta = {"labels": {"pool": pool}, "annotations": annotations}
    spec = {"taints": [TAINT] if taken else [], **spec}
    log.put("Node", f"gpu-{pool}", by=by, namespace="", metadata=meta, spec=spec, status=status)


def takes(log, plan, most="100%", **spec):
    """A plan starts a batch of its pool's node, and closes that."""
    pool = PLANS[plan][-1]
    wanted = {"stack": PLANS[plan], "strategy": {"maxUnavailable": most}}
    batch = {"number": 1, "groups": [{"name": f"c-{pool}", "nodes": [f"gpu-{pool}"]}]}
    log.put("UpgradePlan", plan, namespace="", spec=wanted)
    log.put("UpgradePlan", plan, by=Author.CONTROLLER, namespace="", spec=wanted, status={"batches": [batch]})
    upgrade = {"plan": plan, "group": f"c-{pool}", "node": {"name": f"gpu-{pool}"}}
    status = {"phase": "Tainting", "deadline": "2026-11-21T10:00:00Z"}
    log.put("NodeUpgrade", f"v-{pool}", by=Author.CONTROLLER, namespace="", spec=upgrade, status=status)
    node(log, pool, by=Author.CONTROLLER, taken=True, **spec)


def test_law_4_two_plans_take_more_together_than_either_of_them_may(log):
    takes(log, "up")
    assert log.laws == []
    takes(log, "up-c")
    assert log.laws == [4]


def test_a_plan_that_may_take_both_nodes_waits_for_none(log):
    takes(log, "up")
    takes(log, "up-c", most=16)
    assert log.laws == []


def test_a_node_that_was_out_of_service_before_its_batch_takes_nothing_more(log):
    takes(log, "up")
    node(log, "c", unschedulable=True)
    takes(log, "up-c", unschedulable=True)
    assert log.laws == []


@pytest.mark.parametrize(("key", "laws"), [("needed", []), ("old", [6])])
def test_law_6_operands_are_left_of_a_stack_that_is_gone(log, key, laws):
    meta = {"labels": {"pool": "c", "gpu-upgrader.io/driver": "needed"}}
    log.put("Node", "gpu-c", namespace="", metadata=meta, spec={}, status={})
    labels = {"gpu-upgrader.io/stack": "pool-a", "gpu-upgrader.io/image-key": key}
    log.put(
        "DaemonSet", f"driver-{key}", by=Author.CONTROLLER, namespace=NAMESPACE, metadata={"labels": labels}, spec={}
    )
    log.gone("GpuStack", "pool-a", namespace="")
    log.judge.judge_end(START + timedelta(hours=1))
    assert log.laws == laws
