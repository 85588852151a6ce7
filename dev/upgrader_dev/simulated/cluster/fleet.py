"""The simulated cluster besides the API server, in virtual time: DaemonSets, kubelets, the Job controller, trainers.

One `tick` is a second. The simulation reads only objects, as real controllers do, so that it does not hide what the
operator omits. tests/cluster and tests/e2e compare it with real controllers.
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
    is_avoided,
    is_of_operator,
    is_tolerated,
    trainer_spec,
)
from upgrader_dev.simulated.cluster.trainers import Trainer

WHOLE = ""
"""The key of decisions that are made as a whole."""


@dataclass
class SimulatedFleet(Kubelets):
    """Nodes with GPUs and the jobs on them."""

    backing_off: set[str] = field(default_factory=set)
    """Jobs whose controller waits before it creates another pod."""
    _count: int = 0
    """The number of pods that Jobs have created."""

    def __post_init__(self) -> None:
        """Track the facts that controllers and the scheduler depend on."""
        super().__post_init__()
        self._daemonset_marks = Marks(self.store, {DAEMONSETS: _whole_object, NODES: _node_labels, PODS: _daemon_pod})
        self._daemons = Subset(self.store, PODS, _is_daemon)
        self._job_marks = Marks(self.store, {JOBS: _job_spec, PODS: _owner_members})
        self._schedule_marks = Marks(self.store, {NODES: _node_room, PODS: _pod_load})

    # ---- setting up

    def add_node(self, name: str, *, kernel: str = "6.1.0-47-amd64", kubelet: str = "1.34.4", **labels: str) -> None:
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

    def add_job(
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

    def add_replica(self, name: str, *, node: str, gpus: int) -> None:
        """A pod of a Deployment, which is not replaced, so that its eviction is visible."""
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

    def add_bare_pod(self, name: str, *, node: str, gpus: int, resource: str = RESOURCE) -> None:
        """A pod without an owner."""
        limits = {"limits": {resource: str(gpus)}}
        self.store.put(
            PODS,
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": node, "containers": [{"name": "solo", "resources": limits}]},
                "status": {"phase": "Pending"},
            },
        )

    # ---- one second

    def tick(self) -> None:
        self._boot_nodes()
        self._sync_daemonsets()
        self._offer_devices()
        jobset_controller(self.store)
        kueue_controller(self.store)
        self._sync_jobs()
        statefulset_controller(self.store)
        self._schedule_pods()
        self._run_pods()
        self._train_jobs()
        self.cluster.clock.advance(1)

    def _sync_daemonsets(self) -> None:
        if not self._daemonset_marks.start_round():
            return
        desired: dict[str, tuple[Object, str]] = {}
        for owner in self.store.list_values(DAEMONSETS):
            selector = owner["spec"]["template"]["spec"].get("nodeSelector", {})
            for node in self.store.list_values(NODES) if selector else ():
                labels = node["metadata"].get("labels", {})
                if all(labels.get(key) == value for key, value in selector.items()):
                    desired[f"{owner['metadata']['name']}.{node['metadata']['name']}"] = (
                        owner,
                        node["metadata"]["name"],
                    )
        present = {pod["metadata"]["name"]: pod for pod in self._daemons.list_values()}
        for name, (owner, place) in desired.items():
            if name not in present:
                self._add_pod(name, owner["metadata"]["namespace"], "DaemonSet", owner, node=place)
        for name, pod in present.items():
            if name not in desired:
                self.store.remove(PODS, name, pod["metadata"]["namespace"])
        counts = Counter(owner["metadata"]["name"] for owner, _ in desired.values())
        for owner in self.store.list_values(DAEMONSETS):
            meta = owner["metadata"]
            status = {"desiredNumberScheduled": counts[meta["name"]]}
            self.store.change(DAEMONSETS, meta["name"], {"status": status}, meta["namespace"])

    def _sync_jobs(self) -> None:
        if not self._job_marks.start_round(set(self.backing_off)):
            return
        for job in self.store.list_values(JOBS):
            if job["metadata"]["uid"] not in self._job_marks or _is_finished(job):
                continue
            pods = self.store.list_owned(PODS, job["metadata"]["uid"])
            alive = [pod for pod in pods if pod["status"].get("phase") in {"Pending", "Running"}]
            failed = [pod for pod in pods if pod["status"].get("phase") == "Failed"]
            done = [pod for pod in pods if pod["status"].get("phase") == "Succeeded"]
            name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
            parallelism = job["spec"].get("parallelism", 1)
            if job["spec"].get("suspend"):
                for pod in alive:
                    self._delete_pod(pod)
            elif not (failed and is_of_operator(job)) and name not in self.backing_off:
                for index in sorted(
                    set(range(parallelism)) - {int(pod["metadata"]["labels"]["index"]) for pod in alive + done}
                ):
                    self._add_pod(f"{name}-{index}-{self._next_serial()}", namespace, "Job", job, index=index)
            terminating = [pod for pod in alive if pod["metadata"].get("deletionTimestamp")]
            status: Object = {
                "active": len(alive) - len(terminating),
                "terminating": len(terminating),
                "succeeded": len(done),
                "failed": len(failed),
            }
            if len(done) >= parallelism:
                status["conditions"] = [{"type": "Complete", "status": "True"}]
            elif failed and is_of_operator(job):
                status["conditions"] = [{"type": "Failed", "status": "True"}]
            self.store.change(JOBS, name, {"status": status}, namespace)

    def _next_serial(self) -> str:
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

    def _schedule_pods(self) -> None:
        waiting = [pod for pod in self.store.pods_on_node("") if not pod["metadata"].get("deletionTimestamp")]
        if not waiting or not self._schedule_marks.start_round(self.partitions):
            return
        free = {node["metadata"]["name"]: self._free_gpus(node) for node in self.store.list_values(NODES)}
        for pod in waiting:
            requested = gpus_of(pod)
            if requested > gpus_of(pod, (self._resource,)):
                continue  # no node has this resource
            for node in sorted(self.store.list_values(NODES), key=is_avoided):
                name = node["metadata"]["name"]
                if free[name] >= requested and is_tolerated(pod, node) and fits_node(pod, node):
                    free[name] -= requested
                    self.store.change(
                        PODS, pod["metadata"]["name"], {"spec": {"nodeName": name}}, pod["metadata"]["namespace"]
                    )
                    break

    def _free_gpus(self, node: Object) -> int:
        used = sum(
            gpus_of(pod)
            for pod in self.store.pods_on_node(node["metadata"]["name"])
            if pod["status"].get("phase") in {"Pending", "Running"}
        )
        return int(node["status"]["allocatable"].get(self._resource, 0)) - used

    def _delete_pod(self, pod: Object) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            self.store.mark_deleted(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])


def _is_daemon(pod: Object) -> bool:
    return has_owner(pod, "DaemonSet")


def _whole_object(value: Object) -> Iterator[tuple[Hashable, object]]:
    yield WHOLE, value


def _node_labels(node: Object) -> Iterator[tuple[Hashable, object]]:
    yield WHOLE, node["metadata"].get("labels")


def _daemon_pod(pod: Object) -> Iterator[tuple[Hashable, object]]:
    """The existence of the pod."""
    if _is_daemon(pod):
        yield WHOLE, pod["metadata"]["name"]


def _job_spec(job: Object) -> Iterator[tuple[Hashable, object]]:
    yield job["metadata"]["uid"], job


def _is_finished(job: Object) -> bool:
    """Whether its controller creates no more pods for it."""
    conditions = job.get("status", {}).get("conditions") or []
    return any(
        condition["type"] in {"Complete", "Failed"} and condition["status"] == "True" for condition in conditions
    )


def _owner_members(pod: Object) -> Iterator[tuple[Hashable, object]]:
    """The facts that a controller reads of its pods, by the uid of their owner."""
    meta = pod["metadata"]
    fact = (pod.get("status", {}).get("phase"), meta.get("deletionTimestamp"), meta.get("labels"))
    return ((owner["uid"], fact) for owner in meta.get("ownerReferences") or [])


def _node_room(node: Object) -> Iterator[tuple[Hashable, object]]:
    """The facts that a scheduler reads of a node."""
    labels, allocatable = node["metadata"].get("labels"), node.get("status", {}).get("allocatable")
    yield WHOLE, (node.get("spec"), labels, allocatable)


def _pod_load(pod: Object) -> Iterator[tuple[Hashable, object]]:
    """The facts that a scheduler reads of a pod."""
    phase, stops = pod.get("status", {}).get("phase"), pod["metadata"].get("deletionTimestamp")
    yield WHOLE, (pod.get("spec"), phase, stops)
