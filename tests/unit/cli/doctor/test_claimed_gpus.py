"""What commands say of nodes whose GPUs pods hold by ResourceClaims."""

import json

import pytest

from tests.support.claims import NVIDIA, allocated, claim, claiming
from tests.support.terminal import upgrader
from tests.unit.cli.conftest import NEXT, QUICK
from upgrader.cli.doctor import claimed_gpus
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.reconcile.facts.device_claims import CLAIM
from upgrader_dev.simulated.cluster.rig import STACK

SAID = (
    "default/by-claim holds GPUs by ResourceClaim (dynamic resource allocation). The operator cannot request "
    "checkpoints from such jobs or stop them, so no upgrade begins there until they have ended"
)


@pytest.fixture
def blocked(rig):
    """The fourth node is blocked."""
    rig.cluster.installed |= {(CLAIM.group, CLAIM.plural): (CLAIM.version,)}
    claim(rig.cluster.store, "two", allocated(NVIDIA, NVIDIA))
    claiming(rig.cluster.store, "by-claim", node="gpu-3", of="two")
    return rig


def test_plan_holds_the_node(blocked):
    shown = json.loads(upgrader(blocked, "plan", *NEXT, *QUICK, "--output", "json").stdout)
    reasons = {(one["subject"], one["reason"], one["message"]) for one in shown["forecast"]["blockers"]}
    assert ("gpu-3", "DynamicResources", f"Node gpu-3: {SAID}.") in reasons


def test_drift_shows_it_and_counts_it_for_nothing(blocked):
    shown = json.loads(upgrader(blocked, "drift", "--output", "json").stdout)
    assert [(one["node"], one["findings"]) for one in shown["drift"]] == [
        ("gpu-3", [{"reason": "DynamicResources", "message": f"{SAID}.", "counts": False}])
    ]


def test_why_names_the_pods(blocked):
    assert "default/by-claim holds GPUs by ResourceClaim" in " ".join(upgrader(blocked, "why", "gpu-3").stdout.split())


async def test_doctor_warns_of_it(blocked):
    assert await claimed_gpus.find_claimed_gpus(blocked.context) == [
        Advice(
            subject=f"stack {STACK}",
            check="DynamicResources",
            severity=Severity.WARNING,
            message=f"on gpu-3: {SAID}",
            fix="Request the resourceName of the stack instead: such jobs are stopped and restarted in upgrades.",
        )
    ]


async def test_doctor_says_nothing_where_there_is_none(rig):
    assert await claimed_gpus.find_claimed_gpus(rig.context) == []
