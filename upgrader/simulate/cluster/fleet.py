"""The world beside the API server, in virtual time: DaemonSets, kubelets, the Job controller, trainers.

One `tick` is a second of the world. It reads only objects, as the real parts do, so that a controller that forgets
something is not helped. What it plays is checked against the real parts by tests/cluster and tests/e2e.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, JOBS, NODES, PODS
from upgrader.core import timing
from upgrader.core.orders import ORDER_VARIABLE, OrderResult, Reason
from upgrader.simulate.apiserver.objects import Object
from upgrader.simulate.apiserver.store import ObjectStore
from upgrader.simulate.cluster.controllers import jobset_controller, kueue_controller, statefulset_controller
from upgrader.simulate.cluster.devices import offered, shares
from upgrader.simulate.cluster.placing import (
    PARTITION,
    RESOURCE,
    fits,
    gpus_of,
    has_owner,
    is_ours,
    is_ready,
    shunned,
    tolerates,
    trainer_spec,
)
from upgrader.simulate.cluster.readings import features_read, loaded_read, reads
from upgrader.simulate.cluster.trainers import Trainer, Training

ONE_SHOT = frozenset({"prepare", "visit", "validate"})
"""Components whose pods do something once, and end."""


@dataclass
class Fleet(Training):
    """Nodes with GPUs and the jobs on them."""

    gpus: int = 8
    errands: Callable[[str, Object], OrderResult | None] = lambda _component, _pod: None
    """Another result than success for one of our pods, by component and pod; None: success."""
    hangs: Callable[[Object], bool] = lambda _pod: False
    """Whether the pod of a visit works for ever."""
    features: Callable[[Object], Object | None] = features_read
    """How the container ended that reads what a node is; None: it reads still, or a pod of an earlier boot is shown."""
    loaded: Callable[[ObjectStore, Object, int], Object | None] = loaded_read
    """How the container ended that reads which driver is loaded, with how many GPUs."""
    external_plugin: bool = False
    """Whether somebody else's device plugin runs on every node."""
    partitions: int = 0
    in_parts: set[str] = field(default_factory=set)
    """As how many devices of a resource of their own each GPU is offered; 0: whole, but for nodes with seven each."""
    unwell: dict[str, int] = field(default_factory=dict)
    """GPUs of a node that its plugin calls unhealthy."""
    refuses_devices: set[str] = field(default_factory=set)
    """Nodes whose kubelet knows no device plugin yet, and refuses pods that ask for devices."""
    ignores_sigterm: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    """Nodes whose kubelet does nothing."""
    backing_off: set[str] = field(default_factory=set)
    """Jobs whose controller waits before it makes another pod."""

    reboots: list[tuple[str, str]] = field(default_factory=list)
    """Nodes that a visit rebooted, each with its new kernel."""
    shows_boot_after: int = 5
    """Seconds from a reboot until the Node object shows it."""
    _booting: dict[str, tuple[int, str]] = field(default_factory=dict)

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
        wanted: dict[str, tuple[Object, str]] = {}
        for one in self.store.seen(DAEMONSETS):
            template = one["spec"]["template"]
            selector = template["spec"].get("nodeSelector", {})
            for node in self.store.seen(NODES):
                labels = node["metadata"].get("labels", {})
                if selector and all(labels.get(key) == value for key, value in selector.items()):
                    wanted[f"{one['metadata']['name']}.{node['metadata']['name']}"] = (one, node["metadata"]["name"])
        present = {pod["metadata"]["name"]: pod for pod in self.store.seen(PODS) if has_owner(pod, "DaemonSet")}
        for name, (owner, place) in wanted.items():
            if name not in present:
                self._add_pod(name, owner["metadata"]["namespace"], "DaemonSet", owner, node=place)
        for name, pod in present.items():
            if name not in wanted:
                self.store.remove(PODS, name, pod["metadata"]["namespace"])
        for one in self.store.seen(DAEMONSETS):
            count = sum(owner["metadata"]["name"] == one["metadata"]["name"] for owner, _ in wanted.values())
            meta = one["metadata"]
            self.store.change(
                DAEMONSETS, meta["name"], {"status": {"desiredNumberScheduled": count}}, meta["namespace"]
            )

    def _devices(self) -> None:
        """The kubelet offers devices while a device plugin is registered."""
        for node in self.store.seen(NODES):
            name = node["metadata"]["name"]
            plugins = [
                pod
                for pod in self.store.on_node(name)
                if pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "device-plugin" and is_ready(pod)
            ]
            plugin = self.external_plugin or bool(plugins)
            each = self.partitions or max(map(shares, plugins), default=1)
            well = self.gpus - self.unwell.get(name, 0)
            patch: Object = {"status": {"allocatable": {self._resource: str(well * each) if plugin else "0"}}}
            if plugin:
                patch["status"]["capacity"] = {self._resource: str(self.gpus * each)}
            if name in self.in_parts:
                patch = {"status": {key: {RESOURCE: 0, PARTITION: 7 * well} for key in ("allocatable", "capacity")}}
            self.store.change(NODES, name, patch)
            if other := offered(well * each, plugins=plugins, before=node):
                self.store.change(NODES, name, other)

    def _jobs(self) -> None:
        for job in self.store.seen(JOBS):
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
        self._count = getattr(self, "_count", 0) + 1
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
        waiting = [
            pod
            for pod in self.store.seen(PODS)
            if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        ]
        free = {node["metadata"]["name"]: self._free(node) for node in self.store.seen(NODES)} if waiting else {}
        for pod in waiting:
            asks = gpus_of(pod)
            if asks > gpus_of(pod, (self._resource,)):
                continue  # of a resource that no node has
            for node in sorted(self.store.seen(NODES), key=shunned):
                name = node["metadata"]["name"]
                if free[name] >= asks and tolerates(pod, node) and fits(pod, node):
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

    @property
    def _resource(self) -> str:
        return PARTITION if self.partitions else RESOURCE

    def _pods(self) -> None:
        """Kubelets: bound pods run, our errands end, deleted pods go."""
        for pod in self.store.seen(PODS):
            meta, phase = pod["metadata"], pod["status"].get("phase")
            node = pod["spec"].get("nodeName")
            if not node or node in self.down or self.store.stored(NODES, node) is None:
                continue
            if meta.get("deletionTimestamp"):
                if meta["name"] not in self.ignores_sigterm:
                    self._gone(pod)
            elif phase == "Pending":
                self._start(pod)
                self._read_features(pod)
            elif meta.get("labels", {}).get(names.LABEL_COMPONENT) in {"node-features", "feature-discovery"}:
                self._read_features(pod)
            elif phase == "Running" and meta.get("labels", {}).get(names.LABEL_COMPONENT) in ONE_SHOT:
                self._end_errand(pod)

    def _start(self, pod: Object) -> None:
        if gpus_of(pod) and pod["spec"]["nodeName"] in self.refuses_devices:
            refused = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}
            self.store.change(PODS, pod["metadata"]["name"], {"status": refused}, pod["metadata"]["namespace"])
            return
        status = {
            "phase": "Running",
            "startTime": timing.show(self.cluster.clock.now()),
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": one["name"], "ready": True, "state": {}} for one in pod["spec"].get("containers", [])
            ],
        }
        self.store.change(PODS, pod["metadata"]["name"], {"status": status}, pod["metadata"]["namespace"])
        trainer = self._trainer(pod)
        if trainer is not None:
            trainer.step = min(trainer.step, trainer.saved)

    def _read_features(self, pod: Object) -> None:
        """Once for each boot: the kubelet runs the init containers of a pod again that it finds without its sandbox."""
        component = pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT)
        if component == "node-features":
            ended = self.features(self.store.read(NODES, pod["spec"]["nodeName"]))
        elif component == "feature-discovery" and reads(pod):
            ended = self.loaded(self.store, pod, self.gpus)
        else:
            return
        status = {"initContainerStatuses": [{"name": "read", "state": {"terminated": ended}}]}
        if ended is not None and pod["status"].get("initContainerStatuses") != status["initContainerStatuses"]:
            self.store.change(PODS, pod["metadata"]["name"], {"status": status}, pod["metadata"]["namespace"])

    def _end_errand(self, pod: Object) -> None:
        component = pod["metadata"]["labels"][names.LABEL_COMPONENT]
        if component == "visit" and self.hangs(pod):
            return
        result = self.errands(component, pod) or OrderResult(reason=Reason.DONE, message="done")
        ok = result.reason is Reason.DONE
        if component == "visit" and ok:
            self._carry_out(pod)
        message = json.dumps({"reason": result.reason.value, "message": result.message})
        ended = {"terminated": {"exitCode": 0 if ok else 1, "message": message}}
        statuses = [{"name": one["name"], "state": ended} for one in pod["spec"]["containers"]]
        self.store.change(
            PODS,
            pod["metadata"]["name"],
            {"status": {"phase": "Succeeded" if ok else "Failed", "containerStatuses": statuses}},
            pod["metadata"]["namespace"],
        )

    def _carry_out(self, pod: Object) -> None:
        """What a visit changes: the kubelet's version at once, the kernel with a boot that the Node shows later."""
        variables = {
            one["name"]: one.get("value", "")
            for container in pod["spec"]["containers"]
            for one in container.get("env", [])
        }
        order = json.loads(variables[ORDER_VARIABLE])
        if order.get("kubelet"):
            version = {"nodeInfo": {"kubeletVersion": f"v{order['kubelet']['version']}"}}
            self.store.change(NODES, pod["spec"]["nodeName"], {"status": version})
        name, reboot = pod["spec"]["nodeName"], order.get("reboot")
        if reboot and self.store.read(NODES, name)["status"]["nodeInfo"]["kernelVersion"] != reboot["kernel"]:
            self.reboots.append((name, reboot["kernel"]))
            self._booting[name] = (self.shows_boot_after, reboot["kernel"])

    def _boots(self) -> None:
        for name, (seconds, kernel) in list(self._booting.items()):
            self._booting[name] = (seconds - 1, kernel)
            if seconds <= 0:
                del self._booting[name]
                boot = {"kernelVersion": kernel, "bootID": f"boot-of-{kernel}-{name}"}
                self.store.change(NODES, name, {"status": {"nodeInfo": boot}})

    def _delete(self, pod: Object) -> None:
        if not pod["metadata"].get("deletionTimestamp"):
            self.store.mark_deleted(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])

    def _gone(self, pod: Object) -> None:
        trainer = self._trainer(pod)
        if trainer is not None:
            trainer.lost = max(trainer.lost, trainer.step - trainer.saved)
            trainer.stops += 1
        self.store.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
