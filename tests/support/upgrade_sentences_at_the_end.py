"""The next step of a node upgrade where it gives the node back: sentence, node, group, decision."""

from tests.support.upgrade_cases import (
    ALONE,
    BACK,
    CLOSED,
    GIVEN_BACK,
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
from upgrader.simulate.cluster.ports import START

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
    "a gang that was asked is let go first": (
        view(N.RELEASING, CLOSED),
        around(requests=(gang(R.EXPIRED),)),
        stay(N.RELEASING, "waiting for default/Job/train to be let go"),
    ),
    "the node is given back": (
        view(N.RELEASING, WHOLE),
        around(requests=(gang(R.RESTARTING, bound=True), gang(R.ENDED), gang(R.WITHDRAWN))),
        stay(N.RELEASING, "giving the node back", Act.GIVE_BACK),
    ),
    "a node without a claim is given back, too, since a claim that was sent may still arrive": (
        view(N.RELEASING, UNTOUCHED, **BACK),
        ALONE,
        stay(N.RELEASING, "giving the node back", Act.GIVE_BACK, failure="UpgradeFailed", reverting=True),
    ),
    "but not where another upgrade has claimed it meanwhile": (
        view(N.RELEASING, {**UNTOUCHED, "claimed_by": "u2"}, **BACK),
        ALONE,
        go(N.FAILED, "given back", "UpgradeFailed", reverting=True),
    ),
    "the gang is not placed in time": (
        view(N.RELEASING, WHOLE, deadline=START),
        around(requests=(gang(R.RESTARTING),)),
        stay(N.RELEASING, "giving the node back", Act.GIVE_BACK),
    ),
    "the upgrade succeeded": (view(N.RELEASING, GIVEN_BACK), ALONE, go(N.SUCCEEDED, "given back")),
    "the upgrade failed and nothing of it is left": (
        view(N.RELEASING, {**GIVEN_BACK, "revision": "old"}, **BACK),
        ALONE,
        go(N.FAILED, "given back", "UpgradeFailed", reverting=True),
    ),
    "the upgrade failed, and its last sentence says why": (
        view(N.RELEASING, {**GIVEN_BACK, "revision": "old"}, **BACK, why="nvidia 1.0.0 is in use: pid 7 (sleep)"),
        ALONE,
        go(
            N.FAILED,
            "given back. Why it failed: nvidia 1.0.0 is in use: pid 7 (sleep)",
            "UpgradeFailed",
            reverting=True,
        ),
    ),
    "the node is deleted while given back": (view(N.RELEASING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
}
