"""A responder of the way `api`: it watches CheckpointRequests and writes what the members have said into their status.

An operator or a sidecar beside the job plays this part; here it reads the files of the fleet's trainers.
"""

from typing import Any

from upgrader.api.resources import CHECKPOINT_REQUESTS, PODS
from upgrader.core import untrusted
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.controllers import LABEL_JOBSET
from upgrader_dev.simulated.cluster.trainers import ACK, PROGRESS


class Responder:
    """Patches `status.acks`, and no other field. `every`: seconds between two looks at what members have written."""

    def __init__(self, cluster: FakeCluster, every: int = 1) -> None:
        self._cluster, self._every = cluster, every
        self._ticks = 0

    def tick(self) -> None:
        """Answer every request that is led by the API, when it is time for that."""
        self._ticks += 1
        if self._ticks % self._every:
            return
        for request in self._cluster.store.seen(CHECKPOINT_REQUESTS):
            if request["spec"].get("method") != "api":
                continue
            acks = self._acks(request)
            if acks and acks != request.get("status", {}).get("acks"):
                meta = request["metadata"]
                self._cluster.store.change(
                    CHECKPOINT_REQUESTS, meta["name"], {"status": {"acks": acks}}, meta["namespace"]
                )

    def _acks(self, request: Object) -> list[Object]:
        number, phase = request["spec"]["requestId"], request.get("status", {}).get("phase", "Requested")
        if phase == "Restarting":
            return [
                {"podUid": uid, "requestId": number, "step": said["step"]}
                for uid in self._pods_of(request)
                if (said := self._read(uid, PROGRESS)) is not None
            ]
        members = (member["uid"] for member in request["spec"]["members"])
        said = [one for uid in members if (one := self._read(uid, ACK)) is not None]
        return [one for one in said if one["requestId"] == number]

    def _pods_of(self, request: Object) -> list[str]:
        """Its pods now: those that came after the restart are others."""
        name = request["spec"]["owner"]["name"]
        pods = (pod for pod in self._cluster.store.seen(PODS) if pod["status"].get("phase") == "Running")
        return [pod["metadata"]["uid"] for pod in pods if _belongs_to(pod, name)]

    def _read(self, uid: str, path: str) -> Any:  # noqa: ANN401 - JSON
        text = self._cluster.files.get((uid, path))
        return untrusted.read_json(text, dict[str, Any]) if isinstance(text, bytes) else None


def _belongs_to(pod: Object, owner: str) -> bool:
    meta = pod["metadata"]
    owners = {one["name"] for one in meta.get("ownerReferences", [])}
    return owner in owners | {meta.get("labels", {}).get(LABEL_JOBSET)}
