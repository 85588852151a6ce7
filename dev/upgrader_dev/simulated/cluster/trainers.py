"""Trainers in the simulated cluster: what is kept of a job over its pods, and how its members answer."""

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
    """What is kept of a job over its pods: its checkpoint, and what its members did."""

    step: int = 0
    saved: int = 0
    lost: int = 0
    stops: int = 0
    parks: bool = True
    answers: Callable[[Object, int, int], dict[str, Any] | bytes | None] | None = None
    """Another answer than the honest one, by pod, request id and step."""


@dataclass
class Training:
    """All trainers, by the name of the Job or StatefulSet that makes their pods."""

    cluster: FakeCluster
    trainers: dict[str, Trainer] = field(default_factory=dict)
    parked: dict[str, tuple[int, float]] = field(default_factory=dict)
    mailbox: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Request id and park-seconds of members that were asked by exec, HTTP or signal, by pod uid."""

    @property
    def store(self) -> ObjectStore:
        return self.cluster.store

    def _trainer(self, pod: Object) -> Trainer | None:
        return next(
            (
                self.trainers.get(one["name"])
                for one in pod["metadata"].get("ownerReferences", [])
                if one["kind"] in {"Job", "StatefulSet"}
            ),
            None,
        )

    def _train(self) -> None:
        for name, trainer in self.trainers.items():
            stored = self.store.stored(JOBS, name, "default") or self.store.stored(STATEFULSETS, name, "default")
            if stored is None:
                continue
            owner = stored.value
            members = [
                pod
                for pod in self.store.owned(PODS, owner["metadata"]["uid"])
                if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
            ]
            wanted = owner["spec"].get("parallelism", owner["spec"].get("replicas", 1))
            if not wanted or len(members) < wanted:
                continue
            self._one_step(trainer, members)

    def _one_step(self, trainer: Trainer, members: list[Object]) -> None:
        now = self.cluster.clock.now().timestamp()
        asked = {pod["metadata"]["uid"]: self._asked(pod) for pod in members}
        request = max(number for number, _ in asked.values())
        everybody = bool(request) and all(number == request for number, _ in asked.values())
        if not trainer.parks or not everybody or not self._still_parked(asked, request, now):
            trainer.step += 1
        if everybody:
            trainer.saved = trainer.step if trainer.parks and self._first_time(asked, request, now) else trainer.saved
        parked = everybody and trainer.parks and self._still_parked(asked, request, now)
        for pod in members:
            self._say(pod, trainer, request, everybody=everybody, parked=parked)

    def _asked(self, pod: Object) -> tuple[int, int]:
        """Request id and park-seconds, by whichever way it listens to; zeros where it is not asked."""
        annotations = pod["metadata"].get("annotations", {})
        methods = {one.strip() for one in annotations.get(names.ANNOTATION_METHOD, "file").split(",")}
        marked = (names.ANNOTATION_REQUEST, names.ANNOTATION_PARK_SECONDS) if methods & {"file", "api"} else ()
        by_mark = tuple(int(annotations.get(name, "0")) for name in marked) or (0, 0)
        return max((by_mark[0], by_mark[1]), self.mailbox.get(pod["metadata"]["uid"], (0, 0)))

    def _first_time(self, members: Iterable[str], request: int, now: float) -> bool:
        first = False
        for uid in members:
            if self.parked.get(uid, (0, 0.0))[0] != request:
                self.parked[uid] = (request, now)
                first = True
        return first

    def _still_parked(self, asked: Mapping[str, tuple[int, int]], request: int, now: float) -> bool:
        for uid, (_, seconds) in asked.items():
            since = self.parked.get(uid)
            if since is not None and since[0] == request and now < since[1] + float(seconds):
                return True
        return False

    def _say(self, pod: Object, trainer: Trainer, request: int, *, everybody: bool, parked: bool) -> None:
        uid = pod["metadata"]["uid"]
        self.cluster.files[uid, PROGRESS] = json.dumps({"podUid": uid, "step": trainer.step}).encode()
        if not request:
            self._train_on(uid)
            return
        honest: dict[str, Any] | None = {
            "requestId": request,
            "podUid": uid,
            "step": trainer.saved,
            "uri": "/data/ckpt",
            "parked": parked,
        }
        honest = honest if everybody else None  # nobody saves before all have agreed on the step
        said = trainer.answers(pod, request, trainer.saved) if trainer.answers is not None else honest
        if said is None:
            self.cluster.files.pop((uid, ACK), None)
        else:
            self.cluster.files[uid, ACK] = said if isinstance(said, bytes) else json.dumps(said).encode()

    def _train_on(self, uid: str) -> None:
        """Its acknowledgement stands, and says that it is not parked any more."""
        text = self.cluster.files.get((uid, ACK))
        said = untrusted.read_json(text, dict[str, Any]) if isinstance(text, bytes) else None
        if said is not None:
            self.cluster.files[uid, ACK] = json.dumps({**said, "parked": False}).encode()
