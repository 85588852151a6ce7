"""Build Jobs of driver images in virtual time: what a kubelet would make of them."""

from typing import Any

from upgrader.api import names
from upgrader.api.resources import JOBS, PODS
from upgrader.core.driver_build.build_results import BuildRefusal, BuildResult, termination_message
from upgrader.stack.build_jobs import BUILD
from upgrader_dev.simulated.cluster.rig import Rig


def build_jobs(rig: Rig) -> list[dict[str, Any]]:
    """All build Jobs, the oldest first."""
    found = [
        one
        for one in rig.cluster.store.copy_all(JOBS)
        if one["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == BUILD
    ]
    return sorted(found, key=lambda one: int(one["metadata"]["resourceVersion"]))


def build_ends(rig: Rig, result: BuildResult | BuildRefusal | None, code: int = 0, message: str = "") -> None:
    """The pod of the only Job that has not ended ends with these words."""
    (job,) = [one for one in build_jobs(rig) if not one.get("status", {}).get("conditions")]
    name, namespace, pods = job["metadata"]["name"], job["metadata"]["namespace"], rig.cluster.store
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
    pod = next(iter(pods.list_owned(PODS, job["metadata"]["uid"])), None)
    if pod is None:
        labels = {**job["spec"]["template"]["metadata"]["labels"], "index": "0"}
        meta = {"name": f"{name}-pod", "namespace": namespace, "labels": labels, "ownerReferences": [owner]}
        pod = pods.put(PODS, {"metadata": meta})
    said = termination_message(result).decode() if result is not None else message
    ended = [{"name": BUILD, "state": {"terminated": {"exitCode": code, "message": said}}}]
    status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": ended}
    pods.change(PODS, pod["metadata"]["name"], {"status": status}, namespace)
    kind = "Failed" if code else "Complete"
    pods.change(JOBS, name, {"status": {"conditions": [{"type": kind, "status": "True"}]}}, namespace)
