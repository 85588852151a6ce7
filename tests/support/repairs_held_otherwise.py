"""Repairs that no chaos run can miss: why not, and which test holds each of them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Held:
    """A repair; `why` chaos runs cannot find its defect, and the `test` that does."""

    defect: str
    why: str
    test: str


HELD = (
    Held(
        defect="An endpoint with `..` led the controller's own token to any path of the API server",
        why="the simulated API server has no paths",
        test="tests/unit/kube/test_paths.py",
    ),
    Held(
        defect="The Role had no right to delete a validation pod that the kubelet refused",
        why="the simulated API server grants every right",
        test="tests/unit/deploy/test_rights.py",
    ),
    Held(
        defect="Everybody who may make a CheckpointRequest could put a plan's labels on it",
        why="admission policies are not simulated",
        test="tests/unit/deploy/test_admission_requests.py",
    ),
    Held(
        defect="One slow gang made all others miss the minute in which a node is closed",
        why="a reading takes no virtual time",
        test="tests/unit/reconcile/runtime/test_isolation.py",
    ),
    Held(
        defect="The status of a plan that asks in vain grew without bound",
        why="a run lasts hours, the growth days; size breaks no law",
        test="tests/unit/reconcile/scenarios/test_endless.py",
    ),
    Held(
        defect="Two controllers with the same configured identity led at once",
        why="a run has one leader at a time",
        test="tests/unit/kube/test_lease.py",
    ),
    Held(
        defect="Without a key an image that nobody vouches for was Ready",
        why="all images of a run are trusted",
        test="tests/unit/reconcile/scenarios/test_unverified.py",
    ),
    Held(
        defect="A quantity such as `1k` was read as 0 GPUs",
        why="nodes of a run have 8 GPUs, written as that",
        test="tests/unit/core/test_untrusted.py",
    ),
    Held(
        defect="Each loop listed all pods for itself",
        why="memory breaks no law",
        test="tests/unit/reconcile/facts/test_workloads.py",
    ),
    Held(
        defect="Unreadable answers were kept whole and for ever",
        why="memory breaks no law",
        test="tests/unit/checkpoint/test_methods.py",
    ),
)
