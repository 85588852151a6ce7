"""A responder of the method `api`: it writes the acknowledgements of the members into the CheckpointRequests' status.

In a real cluster an operator or a sidecar of the job does this; here it reads the files of the fleet's trainers.
"""

from typing import Any

from upgrader.api.resources import CHECKPOINT_REQUESTS, PODS
from upgrader.core import untrusted
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.controllers import LABEL_JOBSET
from upgrader_dev.simulated.cluster.trainers import ACK, PROGRESS


class Responder:
    """Patches `status.acks`, and no other field. `interval`: seconds between two reads of the files of members."""

    def __init__(self, cluster: FakeCluster, interval: int = 1) -> None:
        self._cluster, self._interval = cluster, interval
        self._ticks = 0

    def tick(self) -> None:
        """Write acknowledgements for every request with the method `api`, once per interval."""
        self._ticks += 1
        if self._ticks % self._interval:
            return
        for request in self._cluster.store.list_values(CHECKPOINT_REQUESTS):
            if request["spec"].get("method") != "api":
                continue
            acks = self._collect_acks(request)
            if acks and acks != request.get("status", {}).get("acks"):
                meta = request["metadata"]
                self._cluster.store.change(
                    CHECKPOINT_REQUESTS, meta["name"], {"status": {"acks": acks}}, meta["namespace"]
                )

    def _collect_acks(self, request: Object) -> list[Object]:
        number, phase = request["spec"]["requestId"], request.get("status", {}).get("phase", "Requested")
        if phase == "Restarting":
            return [
                {"podUid": uid, "requestId": number, "step": progress["step"]}
                for uid in self._pods_of(request)
                if (progress := self._read(uid, PROGRESS)) is not None
            ]
        members = (member["uid"] for member in request["spec"]["members"])
        acknowledgements = [acknowledgement for uid in members if (acknowledgement := self._read(uid, ACK)) is not None]
        return [acknowledgement for acknowledgement in acknowledgements if acknowledgement["requestId"] == number]

    def _pods_of(self, request: Object) -> list[str]:
        """Its current pods: after the restart these are other pods."""
        name = request["spec"]["owner"]["name"]
        pods = (pod for pod in self._cluster.store.list_values(PODS) if pod["status"].get("phase") == "Running")
        return [pod["metadata"]["uid"] for pod in pods if _belongs_to(pod, name)]

    def _read(self, uid: str, path: str) -> Any:  # noqa: ANN401 - JSON
        text = self._cluster.files.get((uid, path))
        return untrusted.read_json(text, dict[str, Any]) if isinstance(text, bytes) else None


def _belongs_to(pod: Object, owner: str) -> bool:
    meta = pod["metadata"]
    owners = {reference["name"] for reference in meta.get("ownerReferences", [])}
    return owner in owners | {meta.get("labels", {}).get(LABEL_JOBSET)}
