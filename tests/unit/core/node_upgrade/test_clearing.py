"""When pods of a node are evicted: at once, after a pause that a refusal named, or by a person's order."""

from datetime import datetime, timedelta

import pytest

from tests.support.upgrade_cases import CLOSED, EVICTABLE, REPAIR, STRANGER, SWITCHED_OFF, N, stay, view
from upgrader.core.node_upgrade.clearing import EVICTION_REFUSED, UNSUPPORTED, evict_pods
from upgrader.core.node_upgrade.upgrade_state import Act, Decision, GroupView, NodeView
from upgrader_dev.simulated.cluster.ports import START

SOON = START + timedelta(seconds=1)
ORDER = "by order of ann"
REFUSED = {"not_evicted": "not now", "evict_after": SOON}
ORDERED = {"forced": {N.DRAINING: ORDER}}


def decided(node: NodeView, now: datetime = START) -> Decision | None:
    return evict_pods(node, GroupView(nodes=(node,)), now)


def draining(**changes: object) -> NodeView:
    return view(N.DRAINING, CLOSED, **{"others": (EVICTABLE,), **changes})


def off(**changes: object) -> NodeView:
    return view(N.UNLOADING, SWITCHED_OFF, **{"others": (EVICTABLE,), **changes})


def evicts(phase: N, message: str, **more: object) -> Decision:
    return stay(phase, message, Act.EVICT, evict=(EVICTABLE,), **more)


@pytest.mark.parametrize(
    ("node", "now", "expected"),
    [
        (draining(others=(STRANGER,)), START, None),
        (draining(), START, evicts(N.DRAINING, "evicting 1 pod(s) as their PodDisruptionBudgets allow")),
        (draining(not_evicted="not now"), START, evicts(N.DRAINING, "not now")),
        (draining(**REFUSED), START, stay(N.DRAINING, "not now", blocked=EVICTION_REFUSED)),
        (draining(**REFUSED), SOON, evicts(N.DRAINING, "not now")),
        (draining(**REFUSED, **ORDERED), START, evicts(N.DRAINING, f"deleting 1 pod(s) {ORDER}")),
        (off(**REFUSED, **ORDERED), START, stay(N.UNLOADING, "not now", blocked=EVICTION_REFUSED)),
        (off(**ORDERED), START, evicts(N.UNLOADING, "evicting 1 pod(s) as their PodDisruptionBudgets allow")),
        (
            draining(**REFUSED, **REPAIR, others=(EVICTABLE, STRANGER)),
            START,
            stay(N.DRAINING, "not now", blocked=UNSUPPORTED),
        ),
        (
            draining(**REPAIR, others=(EVICTABLE, STRANGER)),
            START,
            evicts(N.DRAINING, "evicting 1 pod(s) as their PodDisruptionBudgets allow", blocked=UNSUPPORTED),
        ),
        (
            draining(**REFUSED, others=(EVICTABLE, STRANGER)),
            START,
            stay(N.DRAINING, "not now", blocked=EVICTION_REFUSED),
        ),
        (draining(**REFUSED, **REPAIR), START, stay(N.DRAINING, "not now", blocked=EVICTION_REFUSED)),
    ],
)
def test_pods_are_evicted(node: NodeView, now: datetime, expected: Decision | None) -> None:
    assert decided(node, now) == expected
