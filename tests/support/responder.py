"""A responder of the way `api`: it watches CheckpointRequests and writes what the members have said into their status.

Whatever stands beside the job (an operator, a sidecar) plays this part; here it reads the files of the fleet's
trainers.
"""

import json
from typing import Any

from tests.support.cluster import FakeCluster
from tests.support.objects import Object
from tests.support.trainers import ACK, PROGRESS
from upgrader.api.resources import CHECKPOINT_REQUESTS, PODS


class Responder:
    """Patches `status.acks`, and no other field."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def tick(self) -> None:
        """Answer every conversation that is led by the API."""
        for request in list(self._cluster.store.all(CHECKPOINT_REQUESTS)):
            if request["spec"].get("method") != "api":
                continue
            acks = self._acks(request)
            if acks and acks != request.get("status", {}).get("acks"):
                meta = request["metadata"]
                self._cluster.store.change(
                    CHECKPOINT_REQUESTS, meta["name"], {"status": {"acks": acks}}, meta["namespace"]
                )

    def _acks(self, request: Object) -> list[Object]:
        number, phase = request["spec"]["requestId"], request.get("status", {}).get("phase", "Asking")
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
        job = request["spec"]["owner"]["name"]
        pods = [pod["metadata"] for pod in self._cluster.store.all(PODS) if pod["status"].get("phase") == "Running"]
        return [one["uid"] for one in pods if any(ref["name"] == job for ref in one.get("ownerReferences", []))]

    def _read(self, uid: str, path: str) -> Any:
        text = self._cluster.files.get((uid, path))
        return json.loads(text) if isinstance(text, bytes) else None
