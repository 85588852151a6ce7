"""How long things took is read from what ended well, and moves what a forecast assumes."""

import msgspec
import pytest

from tests.support.manifests import checkpoint_request
from tests.support.node_upgrades import upgrade
from tests.support.own_requests import own
from upgrader.api.kubernetes import OwnerReference
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.forecast.duration_model import measured_durations
from upgrader.core.model.prediction import Durations
from upgrader.reconcile.observe.durations import learn_durations

PLAN_UID = "uid-plan"
WALK = (("Preparing", "09:00:00"), ("Prepared", "09:01:00"), ("Draining", "09:05:00"), ("Releasing", "09:12:00"))


def upgraded(phase="Succeeded", walk=WALK):
    steps = [{"name": name, "startedAt": f"2026-11-21T{at}Z", "deadline": "2026-11-21T10:00:00Z"} for name, at in walk]
    found = upgrade(phase=phase, steps=steps)
    meta = own(checkpoint_request(), PLAN_UID)["metadata"]
    owners = msgspec.convert(meta["ownerReferences"], list[OwnerReference])
    found_meta = msgspec.structs.replace(found.metadata, labels=meta["labels"], owner_references=owners)
    return msgspec.structs.replace(found, metadata=found_meta)


def request(phase="Restored", plan="pool-a-1", **times):
    body = checkpoint_request()
    body["spec"]["plan"] = plan
    said = {
        "admittedAt": "2026-11-21T09:01:00Z",
        "stoppedAt": "2026-11-21T09:04:00Z",
        "restartedAt": "2026-11-21T09:12:00Z",
        "restoredAt": "2026-11-21T09:14:00Z",
    }
    status = {"phase": phase, **{key: value for key, value in (said | times).items() if value is not None}}
    return msgspec.convert(own(body, PLAN_UID) | {"status": status}, CheckpointRequest)


def test_what_ended_well_is_learned_from():
    assert learn_durations([upgraded()], [request()]) == measured_durations(
        [420], checkpoints=[180], restarts=[120], preparations=[60]
    )


@pytest.mark.parametrize(
    ("upgrades", "requests"),
    [
        ([], [request()]),
        ([upgraded("Failed")], []),
        ([upgraded("Upgrading")], [request("Ended"), request("Withdrawn")]),
        ([upgraded("Failed")], [request(plan="of-another-stack")]),
    ],
    ids=["nothing", "failed", "not ended", "another stack"],
)
def test_nothing_else_is(upgrades, requests):
    assert learn_durations(upgrades, requests) == Durations()


def test_a_request_that_the_plan_did_not_make_teaches_nothing():
    forged = request()
    forged = msgspec.structs.replace(forged, metadata=msgspec.structs.replace(forged.metadata, name="forged"))
    assert learn_durations([upgraded()], [forged]) == measured_durations(
        [420], checkpoints=[], restarts=[], preparations=[60]
    )


def test_a_time_that_is_missing_is_left_out():
    assert learn_durations([upgraded(walk=WALK[:2])], [request(admittedAt=None)]) == measured_durations(
        [], checkpoints=[], restarts=[120], preparations=[60]
    )
