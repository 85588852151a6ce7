"""A gang of one pod with its request, where no plan and no fleet are needed."""

from tests.support.manifests import checkpoint_request
from upgrader.api.resources import CHECKPOINT_REQUESTS, JOBS, PODS
from upgrader.core import timing
from upgrader_dev.simulated.cluster.rig import Rig


def put_lone_gang(rig: Rig, gang: str, *, seconds: int, park: int = 3600, **status: object) -> None:
    """A gang of one pod with its request, in Requested unless `status` says otherwise."""
    job = {"metadata": {"name": gang, "namespace": "default"}, "spec": {"suspend": False}, "status": {"active": 1}}
    uid = rig.cluster.store.put(JOBS, job)["metadata"]["uid"]
    labels = {"batch.kubernetes.io/controller-uid": uid}
    pod = rig.cluster.store.put(
        PODS,
        {
            "metadata": {"name": f"{gang}-0", "namespace": "default", "labels": labels},
            "spec": {"nodeName": gang, "containers": [{"name": "train"}]},
            "status": {"phase": "Running"},
        },
    )
    body = checkpoint_request(gang)
    spec = body["spec"] | {
        "owner": {"kind": "Job", "name": gang, "uid": uid},
        "members": [{"pod": f"{gang}-0", "uid": pod["metadata"]["uid"], "node": gang, "container": "train"}],
        "askedAt": timing.format_time(rig.cluster.clock.now()),
        "parkSeconds": park,
        "timeoutSeconds": seconds,
    }
    rig.cluster.store.put(CHECKPOINT_REQUESTS, body | {"spec": spec, "status": {"phase": "Requested", **status}})
