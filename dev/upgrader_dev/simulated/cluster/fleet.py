"""The world beside the API server, in virtual time: DaemonSets, kubelets, the Job controller, trainers.

One `tick` is a second of the world. It reads only objects, as the real parts do, so that a controller that forgets
something is not helped. What it plays is checked against the real parts by tests/cluster and tests/e2e.
"""

import json
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, JOBS, NODES, PODS
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.changes import Marks, Subset
from upgrader_dev.simulated.cluster.controllers import jobset_controller, kueue_controller, statefulset_controller
from upgrader_dev.simulated.cluster.kubelets import Kubelets
from upgrader_dev.simulated.cluster.placing import (
    RESOURCE,
    fits_node,
    gpus_of,
    has_owner,
    is_ours,
    is_shunned,
    is_tolerated,
    trainer_spec,
)
from upgrader_dev.simulated.cluster.trainers import Trainer

EVERYTHING = ""
"""The key of what is decided as a whole."""


@dataclass
class Fleet(Kubelets):
    """Nodes with GPUs and the jobs on them."""

    backing_off: set[str] = field(default_factory=set)
    """Jobs whose controller waits before it makes another pod."""
    _count: int = 0
    """Of the pods that Jobs have made."""

    def __post_init__(self) -> None:
        """Follow what controllers and the scheduler decide from."""
        super().__post_init__()
        self._daemonset_marks = Marks(self.store, {DAEMONSETS: _whole_object, NODES: _node_labels, PODS: _daemon_pod})
        self._daemons = Subset(self.store, PODS, _is_daemon)
        self._job_marks = Marks(self.store, {JOBS: _job_spec, PODS: _owner_members})
        self._schedule_marks = Marks(self.store, {NODES: _node_room, PODS: _pod_load})

    # ---- setting up

    def node(self, name: str, *, kernel: str = "6.1.0-47-amd64", kubelet: str = "1.34.4", **labels: str) -> None:
        self.store.put(
            NODES,
            {
                "metadata": {
                    "name": name,
                    "labels": {"pool": "a", **{k.replace("__", "/"): v for k, v in labels.items()}},
                },
                "spec": {},
                "status": {
                    "capacity": {"cpu": "64"},
                    "allocatable": {"cpu": "64"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"kernelVersion": kernel, "kubeletVersion": f"v{kubelet}", "bootID": f"boot-1-{name}"},
                },
            },
        )

    def job(
        self, name: str, *, members: int = 1, gpus: int = 8, method: str = "file", template: Object | None = None
    ) -> None:
        self.trainers[name] = Trainer()
        annotations = {names.ANNOTATION_METHOD: method} if method else {}
        spec = template if template is not None else trainer_spec(gpus)
        self.store.put(
            JOBS,
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "parallelism": members,
                    "completions": members,
                    "completionMode": "Indexed",
                    "suspend": False,
                    "template": {"metadata": {"annotations": annotations, "labels": {"job": name}}, "spec": spec},
                },
                "status": {},
            },
        )

    def replica(self, name: str, *, node: str, gpus: int) -> None:
        """A pod of a Deployment: its owner replaces it, here nowhere, so that its eviction can be seen."""
        limits = {"limits": {RESOURCE: str(gpus)}}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"rs-{name}", "controller": True}
        self.store.put(
            PODS,
            {
                "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
                "spec": {"nodeName": node, "containers": [{"name": "web", "resources": limits}]},
                "status": {"phase": "Pending"},
            },
        )

    def bare(self, name: str, *, node: str, gpus: int, resource: str = RESOURCE) -> None:
        """A pod that nobody makes again."""
        limits = {"limits": {resource: str(gpus)}}
        self.store.put(
            PODS,
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": node, "containers": [{"name": "solo", "resources": limits}]},
                "status": {"phase": "Pending"},
            },
        )

    # ---- a second of the world

    def tick(self) -> None:
        self._boots()
        self._daemonsets()
        self._devices()
        jobset_controller(self.store)
        kueue_controller(self.store)
        self._jobs()
        statefulset_controller(self.store)
        self._schedule()
        self._pods()
        self._train()
        self.cluster.clock.advance(1)

    def _daemonsets(self) -> None:
        if not self._daemonset_marks.begin():
            return
        wanted: dict[str, tuple[Object, str]] = {}
        for owner in self.store.seen(DAEMONSETS):
            selector = owner["spec"]["template"]["spec"].get("nodeSelector", {})
            for node in self.store.seen(NODES) if selector else ():
                labels = node["metadata"].get("labels", {})
                if all(labels.get(key) == value for key, value in selector.items()):
                    wanted[f"{owner['metadata']['name']}.{node['metadata']['name']}"] = (
                        owner,
                        node["metadata"]["name"],
                    )
        present = {pod["metadata"]["name"]: pod for pod in self._daemons.seen()}
        for name, (owner, place) in wanted.items():
            if name not in present:
                self._add_pod(name, owner["metadata"]["namespace"], "DaemonSet", owner, node=place)
        for name, pod in present.items():
            if name not in wanted:
                self.store.remove(PODS, name, pod["metadata"]["namespace"])
        counts = Counter(owner["metadata"]["name"] for owner, _ in wanted.values())
        for owner in self.store.seen(DAEMONSETS):
            meta = owner["metadata"]
            status = {"desiredNumberScheduled": counts[meta["name"]]}
            self.store.change(DAEMONSETS, meta["name"], {"status": status}, meta["namespace"])

    def _jobs(self) -> None:
        if not self._job_marks.begin(set(self.backing_off)):
            return
        for job in self.store.seen(JOBS):
            if job["metadata"]["uid"] not in self._job_marks or _is_over(job):
                continue
            mine = self.store.owned(PODS, job["metadata"]["uid"])
            alive = [pod for pod in mine if pod["status"].get("phase") in {"Pending", "Running"}]
            failed = [pod for pod in mine if pod["status"].get("phase") == "Failed"]
            done = [pod for pod in mine if pod["status"].get("phase") == "Succeeded"]
            name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
            wanted = job["spec"].get("parallelism", 1)
            if job["spec"].get("suspend"):
                for pod in alive:
                    self._delete(pod)
            elif not (failed and is_ours(job)) and name not in self.backing_off:
                for index in sorted(
                    set(range(wanted)) - {int(pod["metadata"]["labels"]["index"]) for pod in alive + done}
                ):
                    self._add_pod(f"{name}-{index}-{self._serial()}", namespace, "Job", job, index=index)
            terminating = [pod for pod in alive if pod["metadata"].get("deletionTimestamp")]
            status: Object = {
                "active": len(alive) - len(terminating),
                "terminating": len(terminating),
                "succeeded": len(done),
                "failed": len(failed),
            }
            if len(done) >= wanted:
                status["conditions"] = [{"type": "Complete", "status": "True"}]
            elif failed and is_ours(job):
                status["conditions"] = [{"type": "Failed", "status": "True"}]
            self.store.change(JOBS, name, {"status": status}, namespace)

    def _serial(self) -> str:
        self._count += 1
        return str(self._count)

    def _add_pod(
        self, name: str, namespace: str, kind: str, owner: Object, *, node: str = "", index: int | None = None
    ) -> None:
        template = json.loads(json.dumps(owner["spec"]["template"]))
        meta = template.get("metadata", {})
        labels = dict(meta.get("labels", {}))
        if kind == "Job":
            labels |= {"batch.kubernetes.io/controller-uid": owner["metadata"]["uid"], "index": str(index)}
        reference = {
            "kind": kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        spec = template["spec"]
        if node:
            spec["nodeName"] = node
        self.store.put(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": labels,
                    "annotations": dict(meta.get("annotations", {})),
                    "ownerReferences": [reference],
                },
                "spec": spec,
                "status": {"phase": "Pending"},
            },
        )

    def _schedule(self) -> None:
        waiting = [pod for pod in self.store.on_node("") if not pod["metadata"].get("deletionTimestamp")]
        if not waiting or not self._schedule_marks.begin(self.partitions):
            return
        free = {node["metadata"]["name"]: self._free(node) for node in self.store.seen(NODES)}
        for pod in waiting:
            asks = gpus_of(pod)
            if asks > gpus_of(pod, (self._resource,)):
                continue  # of a resource that no node has
            for node in sorted(self.store.seen(NODES), key=is_shunned):
                name = node["metadata"]["name"]
                if free[name] >= asks and is_tolerated(pod, node) and fits_node(pod, node):
                    free[name] -= asks
                    self.store.change(
                        PODS, pod["metadata"]["name"], {"spec": {"nodeName": name}}, pod["metadata"]["namespace"]
                    )
                    break

    def _free(self, node: Object) -> int:
        used = sum(
            gpus_of(pod)
            for pod in self.store.on_node(node["metadata"]["name"])
            if pod["status"].get("phase") in {"Pending", "Running"}
        )
        return int(node["status"]["allocatable"].get(self._resource, 0)) - used

    def _delete(self, pod: Object) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            self.store.mark_deleted(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])


def _is_daemon(pod: Object) -> bool:
    return has_owner(pod, "DaemonSet")


def _whole_object(value: Object) -> Iterator[tuple[Hashable, object]]:
    yield EVERYTHING, value


def _node_labels(node: Object) -> Iterator[tuple[Hashable, object]]:
    yield EVERYTHING, node["metadata"].get("labels")


def _daemon_pod(pod: Object) -> Iterator[tuple[Hashable, object]]:
    """That it is there."""
    if _is_daemon(pod):
        yield EVERYTHING, pod["metadata"]["name"]


def _job_spec(job: Object) -> Iterator[tuple[Hashable, object]]:
    yield job["metadata"]["uid"], job


def _is_over(job: Object) -> bool:
    """Whether its controller makes no pods for it any more, whatever becomes of those that it had."""
    conditions = job.get("status", {}).get("conditions") or []
    return any(each["type"] in {"Complete", "Failed"} and each["status"] == "True" for each in conditions)


def _owner_members(pod: Object) -> Iterator[tuple[Hashable, object]]:
    """What a controller reads of its pods, by the uid of their owner."""
    meta = pod["metadata"]
    fact = (pod.get("status", {}).get("phase"), meta.get("deletionTimestamp"), meta.get("labels"))
    return ((owner["uid"], fact) for owner in meta.get("ownerReferences") or [])


def _node_room(node: Object) -> Iterator[tuple[Hashable, object]]:
    """What a scheduler reads of a node."""
    labels, allocatable = node["metadata"].get("labels"), node.get("status", {}).get("allocatable")
    yield EVERYTHING, (node.get("spec"), labels, allocatable)


def _pod_load(pod: Object) -> Iterator[tuple[Hashable, object]]:
    """What a scheduler reads of a pod, bound or not."""
    phase, stops = pod.get("status", {}).get("phase"), pod["metadata"].get("deletionTimestamp")
    yield EVERYTHING, (pod.get("spec"), phase, stops)
