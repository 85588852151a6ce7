"""The next step of a node upgrade in which it releases the node: sentence, node, group, decision."""

from tests.support.upgrade_cases import (
    AFTER_RELEASE,
    ALONE,
    BACK,
    CLOSED,
    GONE_MESSAGE,
    UNTOUCHED,
    WHOLE,
    N,
    R,
    around,
    gang,
    go,
    stay,
    view,
)
from upgrader.core.node_upgrade.upgrade_state import Act
from upgrader_dev.simulated.cluster.ports import START

AT_THE_END = {
    "the gang is restarted first": (
        view(N.RELEASING, WHOLE),
        around(requests=(gang(R.STOPPED),)),
        stay(N.RELEASING, "waiting for default/Job/train to be restarted"),
    ),
    "a gang that was still stopping is restarted first": (
        view(N.RELEASING, WHOLE),
        around(requests=(gang(R.STOPPING),)),
        stay(N.RELEASING, "waiting for default/Job/train to be restarted"),
    ),
    "the gang is placed first": (
        view(N.RELEASING, WHOLE),
        around(requests=(gang(R.RESTARTING),)),
        stay(N.RELEASING, "waiting for default/Job/train to be placed"),
    ),
    "a gang that was asked is released first": (
        view(N.RELEASING, CLOSED),
        around(requests=(gang(R.EXPIRED),)),
        stay(N.RELEASING, "waiting for default/Job/train to be withdrawn"),
    ),
    "the node is released": (
        view(N.RELEASING, WHOLE),
        around(requests=(gang(R.RESTARTING, bound=True), gang(R.ENDED), gang(R.WITHDRAWN))),
        stay(N.RELEASING, "releasing the node", Act.RELEASE),
    ),
    "a node without a claim is released, too, since a claim that was sent may still arrive": (
        view(N.RELEASING, UNTOUCHED, **BACK),
        ALONE,
        stay(N.RELEASING, "releasing the node", Act.RELEASE, failure="UpgradeFailed", reverting=True),
    ),
    "but not where another upgrade has claimed it meanwhile": (
        view(N.RELEASING, {**UNTOUCHED, "claimed_by": "u2"}, **BACK),
        ALONE,
        go(N.FAILED, "released", "UpgradeFailed", reverting=True),
    ),
    "the gang is not placed in time": (
        view(N.RELEASING, WHOLE, deadline=START),
        around(requests=(gang(R.RESTARTING),)),
        stay(N.RELEASING, "releasing the node", Act.RELEASE),
    ),
    "the upgrade succeeded": (view(N.RELEASING, AFTER_RELEASE), ALONE, go(N.SUCCEEDED, "released")),
    "the upgrade failed and nothing of it is left": (
        view(N.RELEASING, {**AFTER_RELEASE, "revision": "old"}, **BACK),
        ALONE,
        go(N.FAILED, "released", "UpgradeFailed", reverting=True),
    ),
    "the upgrade failed, and its last sentence says why": (
        view(N.RELEASING, {**AFTER_RELEASE, "revision": "old"}, **BACK, why="nvidia 1.0.0 is in use: pid 7 (sleep)"),
        ALONE,
        go(
            N.FAILED,
            "released. Why it failed: nvidia 1.0.0 is in use: pid 7 (sleep)",
            "UpgradeFailed",
            reverting=True,
        ),
    ),
    "the node is deleted while released": (view(N.RELEASING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
}
