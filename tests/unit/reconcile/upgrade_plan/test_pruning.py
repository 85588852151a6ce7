"""Which upgrades and requests of ended batches go while their plan goes on."""

import msgspec

from tests.support.manifests import checkpoint_request, node_upgrade
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.reconcile.render.custom_objects import LABEL_BATCH
from upgrader.reconcile.upgrade_plan.pruning import settled_requests, superseded_upgrades


def upgrade(batch: int, *, node: str = "gpu-0", phase: str = "Failed", reason: str = "NotAcknowledged") -> NodeUpgrade:
    body = node_upgrade()
    body["metadata"] |= {"name": f"{node}-{batch}", "labels": {LABEL_BATCH: str(batch)}}
    body["spec"]["node"] = {"name": node, "uid": f"uid-{node}"}
    return msgspec.convert(body | {"status": {"phase": phase, "reason": reason}}, NodeUpgrade)


def request(
    number: int, *, job: str = "a", group: str = "c", reason: str = "NotParked", **status: str
) -> CheckpointRequest:
    body = checkpoint_request()
    body["metadata"] |= {"name": f"{job}-{number}", "uid": f"{job}-{number}"}
    body["spec"] |= {"gang": f"ns/Job/{job}", "group": group, "requestId": number}
    body["spec"]["owner"] = body["spec"]["owner"] | {"name": job, "uid": job}
    said = {"phase": "Withdrawn", "reason": reason, "endedAt": "2026-11-21T09:00:00Z", **status}
    return msgspec.convert(body | {"status": said}, CheckpointRequest)


def names(found: list) -> list[str]:
    return [one.metadata.name for one in found]


def test_a_node_upgrade_goes_when_its_node_was_taken_again() -> None:
    assert names(superseded_upgrades([upgrade(9), upgrade(10), upgrade(3, node="gpu-1")])) == ["gpu-0-9"]


def test_a_node_upgrade_stays_that_changed_something_or_counts_as_a_failure() -> None:
    odd = [upgrade(1, phase="Succeeded", reason=""), upgrade(2, reason="NotDrained"), upgrade(3, reason="RevertFailed")]
    assert superseded_upgrades([*odd, upgrade(4)]) == []


def test_the_latest_of_a_job_stays_and_so_does_its_latest_refusal() -> None:
    said = [request(1, reason="Refused"), request(2, reason="Refused"), request(3), request(4, reason="GroupReleased")]
    assert names(settled_requests([*said, request(5, job="b")], {"c"}, None)) == ["a-1"]


def test_a_request_that_stopped_its_gang_stays() -> None:
    stopped = request(1, stoppedAt="2026-11-21T09:00:00Z")
    assert settled_requests([stopped, request(2)], {"c"}, {"a"}) == []


def test_a_job_that_is_gone_is_forgotten_with_its_last_upgrade() -> None:
    assert names(settled_requests([request(1)], set(), {"b"})) == ["a-1"]
    assert settled_requests([request(1)], {"c"}, {"b"}) == []
    assert settled_requests([request(1)], set(), None) == [], "who is there is not known"


def test_what_is_under_way_stays() -> None:
    assert settled_requests([request(1, phase="Requested"), request(2)], set(), {"b"}) == [request(2)]
