"""Trainers in the simulated cluster: the state of a job across its pods, and the acknowledgements of its members."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from upgrader.api import names
from upgrader.api.resources import JOBS, PODS
from upgrader.core import untrusted
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore
from upgrader_dev.simulated.cluster.controllers import STATEFULSETS

ACK = "/run/checkpoint/ack.json"
PROGRESS = "/run/checkpoint/progress.json"


@dataclass
class Trainer:
    """The state of a job across its pods: its checkpoint, and statistics of its members."""

    step: int = 0
    saved: int = 0
    lost: int = 0
    stops: int = 0
    parks: bool = True
    answers: Callable[[Object, int, int], dict[str, Any] | bytes | None] | None = None
    """An acknowledgement to write instead of the correct one, by pod, request id and step."""


@dataclass
class Training:
    """All trainers, by the name of the Job or StatefulSet that creates their pods."""

    cluster: FakeCluster
    trainers: dict[str, Trainer] = field(default_factory=dict)
    parked: dict[str, tuple[int, float]] = field(default_factory=dict)
    mailbox: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Request id and park seconds of members that got a request by exec, HTTP or signal, by pod uid."""

    @property
    def store(self) -> ObjectStore:
        return self.cluster.store

    def _find_trainer(self, pod: Object) -> Trainer | None:
        return next(
            (
                self.trainers.get(reference["name"])
                for reference in pod["metadata"].get("ownerReferences", [])
                if reference["kind"] in {"Job", "StatefulSet"}
            ),
            None,
        )

    def _train_jobs(self) -> None:
        for name, trainer in self.trainers.items():
            stored = self.store.find_stored(JOBS, name, "default") or self.store.find_stored(
                STATEFULSETS, name, "default"
            )
            if stored is None:
                continue
            owner = stored.value
            members = [
                pod
                for pod in self.store.list_owned(PODS, owner["metadata"]["uid"])
                if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
            ]
            count = owner["spec"].get("parallelism", owner["spec"].get("replicas", 1))
            if not count or len(members) < count:
                continue
            self._run_step(trainer, members)

    def _run_step(self, trainer: Trainer, members: list[Object]) -> None:
        now = self.cluster.clock.now().timestamp()
        requests = {pod["metadata"]["uid"]: self._read_request(pod) for pod in members}
        request = max(number for number, _ in requests.values())
        all_requested = bool(request) and all(number == request for number, _ in requests.values())
        if not trainer.parks or not all_requested or not self._still_parked(requests, request, now):
            trainer.step += 1
        if all_requested:
            trainer.saved = (
                trainer.step if trainer.parks and self._park_members(requests, request, now) else trainer.saved
            )
        parked = all_requested and trainer.parks and self._still_parked(requests, request, now)
        for pod in members:
            self._write_acknowledgement(pod, trainer, request, all_requested=all_requested, parked=parked)

    def _read_request(self, pod: Object) -> tuple[int, int]:
        """Request id and park seconds, from the methods that it declares; zeros without a request."""
        annotations = pod["metadata"].get("annotations", {})
        methods = {method.strip() for method in annotations.get(names.ANNOTATION_METHOD, "file").split(",")}
        marked = (names.ANNOTATION_REQUEST, names.ANNOTATION_PARK_SECONDS) if methods & {"file", "api"} else ()
        by_mark = tuple(int(annotations.get(name, "0")) for name in marked) or (0, 0)
        return max((by_mark[0], by_mark[1]), self.mailbox.get(pod["metadata"]["uid"], (0, 0)))

    def _park_members(self, members: Iterable[str], request: int, now: float) -> bool:
        first = False
        for uid in members:
            if self.parked.get(uid, (0, 0.0))[0] != request:
                self.parked[uid] = (request, now)
                first = True
        return first

    def _still_parked(self, requests: Mapping[str, tuple[int, int]], request: int, now: float) -> bool:
        for uid, (_, seconds) in requests.items():
            since = self.parked.get(uid)
            if since is not None and since[0] == request and now < since[1] + float(seconds):
                return True
        return False

    def _write_acknowledgement(
        self, pod: Object, trainer: Trainer, request: int, *, all_requested: bool, parked: bool
    ) -> None:
        uid = pod["metadata"]["uid"]
        self.cluster.files[uid, PROGRESS] = json.dumps({"podUid": uid, "step": trainer.step}).encode()
        if not request:
            self._clear_parked(uid)
            return
        correct: dict[str, Any] | None = {
            "requestId": request,
            "podUid": uid,
            "step": trainer.saved,
            "uri": "/data/ckpt",
            "parked": parked,
        }
        correct = correct if all_requested else None  # no member saves before all members have agreed on the step
        acknowledgement = trainer.answers(pod, request, trainer.saved) if trainer.answers is not None else correct
        if acknowledgement is None:
            self.cluster.files.pop((uid, ACK), None)
        else:
            self.cluster.files[uid, ACK] = (
                acknowledgement if isinstance(acknowledgement, bytes) else json.dumps(acknowledgement).encode()
            )

    def _clear_parked(self, uid: str) -> None:
        """Keep the acknowledgement, and set it to not parked."""
        text = self.cluster.files.get((uid, ACK))
        acknowledgement = untrusted.read_json(text, dict[str, Any]) if isinstance(text, bytes) else None
        if acknowledgement is not None:
            self.cluster.files[uid, ACK] = json.dumps({**acknowledgement, "parked": False}).encode()
