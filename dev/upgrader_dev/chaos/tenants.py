"""Hostile tenants: what a user with write access to one namespace may create."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, JOBS, NODE_UPGRADES, PODS
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase, is_final
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.events import EVERYWHERE
from upgrader_dev.chaos.faults import Fault
from upgrader_dev.chaos.fleets import ChaosFleetSpec
from upgrader_dev.chaos.rollouts import PLAN
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.placing import RESOURCE
from upgrader_dev.simulated.cluster.rig import Rig

NAMESPACE = "mallory"
DEEP = 5000

TEXTS = (
    "9999999999d",
    "9" * 5000,
    "-1h",
    "1e999s",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "[" * DEEP,
    '{"x":' * DEEP,
    '["/bin/sh","-c","id"]',
    ":8080/../../../../apis/apps/v1/namespaces",
    "../../etc/passwd",
    "SIGKILL",
    "file," * 2000,
    "\u0000\ufffd\u202e",
    "NaN",
    "",
)
ANNOTATIONS = (
    names.ANNOTATION_METHOD,
    names.ANNOTATION_COMMAND,
    names.ANNOTATION_ENDPOINT,
    names.ANNOTATION_SIGNAL,
    names.ANNOTATION_CONTAINER,
    names.ANNOTATION_TIMEOUT,
    names.ANNOTATION_LANE,
    names.ANNOTATION_PATH,
    names.ANNOTATION_ACK_SCOPE,
    names.ANNOTATION_MIN_RUNTIME,
    names.ANNOTATION_EXPECTED_RUNTIME,
    names.ANNOTATION_EXPECTED_COMPLETION,
    names.ANNOTATION_MAX_LOSS,
    names.ANNOTATION_ON_DEADLINE,
    names.ANNOTATION_REQUEST,
    names.ANNOTATION_PARK_SECONDS,
)
COMPONENTS = ("prepare", "validate", "upgrade", "driver", "monitoring", "node-features", "feature-discovery")


_WANTED = {"Preparing": "prepare", "Upgrading": "upgrade", "Validating": "validate"}
"""The component whose result a node upgrade waits for, by its phase."""


class Tenants:
    """Creates the objects of hostile tenants, all in their namespace."""

    def __init__(self, rig: Rig, fleet: ChaosFleetSpec, draws: Draws) -> None:
        self._rig, self._fleet, self._draws = rig, fleet, draws
        self._store = rig.cluster.store
        self._count = 0
        self.actions: Mapping[Fault, Callable[[], None]] = {
            Fault.MALFORMED_TEXT: self._put_malformed_pod,
            Fault.EXTREME_NUMBERS: self._put_extreme_job,
            Fault.FORGED_POD: self._put_forged_pod,
            Fault.FORGED_REQUEST: self._put_forged_request,
            Fault.FORGED_RECORD: self._put_forged_record,
        }

    def _next_name(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._count}"

    def _draw_node(self) -> str:
        return f"gpu-{self._draws.draw_number(0, self._fleet.nodes - 1)}"

    def _put_malformed_pod(self) -> None:
        """A pod with malformed annotations, which the scheduler may place."""
        annotations = {name: self._draws.draw_choice(TEXTS) for name in self._draws.draw_sample(ANNOTATIONS, 4)}
        labels = {"kueue.x-k8s.io/max-exec-time-seconds": "9" * 60} if self._draws.is_hit(0.2) else {}
        self._put_pod(
            self._next_name("odd"), annotations=annotations, labels=labels, gpus=self._draws.draw_choice([0, 1])
        )

    def _put_extreme_job(self) -> None:
        spec: Object = {
            "parallelism": 1,
            "completions": 1,
            "activeDeadlineSeconds": self._draws.draw_choice([2**63 - 1, 0, 10**18]),
            "template": {
                "metadata": {"annotations": {names.ANNOTATION_METHOD: "file"}},
                "spec": {"containers": [{"name": "x", "resources": {"limits": {RESOURCE: "1"}}}]},
            },
        }
        meta = {"name": self._next_name("long"), "namespace": NAMESPACE}
        self._store.put(JOBS, {"metadata": meta, "spec": spec, "status": {"startTime": self._current_time()}})

    def _put_forged_pod(self) -> None:
        """A tenant may set any label, owner and node on its own pod."""
        upgrades = [stored.value for stored in self._store.list_stored(NODE_UPGRADES)]
        under_way = [upgrade for upgrade in upgrades if not is_final(NodePhase(_phase_of(upgrade)))]
        upgrade = self._draws.draw_choice(under_way or upgrades) if upgrades else None
        component = self._draws.draw_choice(COMPONENTS)
        if under_way and upgrade is not None and self._draws.is_hit(0.7):
            component = _WANTED.get(_phase_of(upgrade), component)
        labels = {names.LABEL_COMPONENT: component, names.LABEL_STACK: "pool-a"}
        annotations, owners, node = {}, [], self._draw_node()
        if upgrade is not None:
            meta = upgrade["metadata"]
            annotations = {names.ANNOTATION_NODE_UPGRADE: meta["name"], names.ANNOTATION_READABLE: "sim 2.0 x"}
            reference = {"apiVersion": NODE_UPGRADES.api_version, "kind": "NodeUpgrade", "name": meta["name"]}
            owners = [{**reference, "uid": meta["uid"], "controller": True}]
            node = upgrade["spec"]["node"]["name"]
            labels[names.LABEL_IMAGE_KEY] = str(upgrade["spec"]["target"].get("driverKey", ""))
        done = {"terminated": {"exitCode": 0, "message": json.dumps({"reason": "Done", "message": "done"})}}
        ended = component in {"prepare", "validate", "upgrade"}
        status = {
            "phase": "Succeeded" if ended else "Running",
            "conditions": [{"type": "Ready", "status": str(not ended)}],
            "containerStatuses": [{"name": "x", "ready": not ended, "state": done if ended else {}}],
        }
        self._put_pod(
            self._next_name(component), labels=labels, annotations=annotations, owners=owners, node=node, status=status
        )

    def _put_forged_request(self) -> None:
        jobs = [stored.value for stored in self._store.list_stored(JOBS, "default")]
        job = self._draws.draw_choice(jobs)["metadata"] if jobs else {"name": "train", "uid": "nobody"}
        upgrades = [stored.value for stored in self._store.list_stored(NODE_UPGRADES)]
        group = self._draws.draw_choice(upgrades)["spec"]["group"] if upgrades else "c-1"
        endpoint = self._draws.draw_choice([":8080/checkpoint", ":8080/../../../../apis/apps/v1"])
        spec: Object = {
            "gang": f"default/Job/{job['name']}",
            "plan": PLAN,
            "group": self._draws.draw_choice([group, "elsewhere"]),
            "owner": {"kind": "Job", "name": job["name"], "uid": job["uid"]},
            "members": [{"pod": "mine", "uid": "mine", "node": self._draw_node(), "container": "x"}],
            "requestId": self._draws.draw_choice([1, 2**31, 2**53]),
            "askedAt": self._draws.draw_choice([self._current_time(), "9999-12-31T23:59:59Z"]),
            "parkSeconds": 60,
            "method": self._draws.draw_choice(["file", "http"]),
            "endpoint": endpoint,
        }
        labels = {names.LABEL_PLAN: PLAN, f"{names.GROUP}/batch": self._draws.draw_choice(["1", "x", "9" * 60])}
        body = {"metadata": {"name": self._next_name("forged"), "namespace": NAMESPACE, "labels": labels}, "spec": spec}
        self._put_if_absent(CHECKPOINT_REQUESTS, body)

    def _put_forged_record(self) -> None:
        record = self._draws.draw_choice(['{"x":' + "[" * DEEP, "not json", "{}", '{"plan": 7, "request": []}'])
        meta = {
            "name": self._next_name("record"),
            "namespace": NAMESPACE,
            "annotations": {names.ANNOTATION_STOPPED: record},
        }
        template = {"spec": {"containers": [{"name": "x"}]}}
        spec = {"parallelism": 1, "completions": 1, "suspend": True, "template": template}
        self._store.put(JOBS, {"metadata": meta, "spec": spec, "status": {}})

    def _put_pod(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        gpus: int = 0,
        owners: list[Object] | None = None,
        node: str = "",
        status: Object | None = None,
    ) -> None:
        limits = {"limits": {RESOURCE: str(gpus)}} if gpus else {}
        spec: Object = {"containers": [{"name": "x", "resources": limits}], "tolerations": EVERYWHERE}
        if node:
            spec["nodeName"] = node
        meta = {"name": name, "namespace": NAMESPACE, "labels": dict(labels), "annotations": dict(annotations)}
        body = {"metadata": meta | {"ownerReferences": owners or []}, "spec": spec}
        self._store.put(PODS, body | {"status": status or {"phase": "Pending"}})

    def _put_if_absent(self, kind: Any, body: Object) -> None:  # noqa: ANN401 - a kind of any type
        """Create an object if its name is free."""
        meta = body["metadata"]
        if self._store.find_stored(kind, meta["name"], meta["namespace"]) is None:
            self._store.put(kind, body)

    def _current_time(self) -> str:
        return timing.format_time(self._rig.cluster.clock.now())


def _phase_of(upgrade: Object) -> str:
    return str((upgrade.get("status") or {}).get("phase") or "Pending")
