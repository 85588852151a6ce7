"""The kubelets of the simulated cluster: devices that they offer, pods that they run, boots of their nodes."""

import json
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from upgrader.api import names
from upgrader.api.resources import NODES, PODS
from upgrader.core import timing
from upgrader.core.node_protocol.orders import ORDER_VARIABLE, OrderResult, Reason
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore
from upgrader_dev.simulated.cluster.changes import Marks, Subset
from upgrader_dev.simulated.cluster.devices import offered_resources, shares_per_device
from upgrader_dev.simulated.cluster.placing import PARTITION, RESOURCE, gpus_of, is_ready
from upgrader_dev.simulated.cluster.readings import features_read, loaded_read, reads_at_start
from upgrader_dev.simulated.cluster.trainers import Training

READERS = frozenset({"node-features", "feature-discovery"})
"""Components whose pods report what they read of their node."""

ONE_SHOT = frozenset({"prepare", "upgrade", "validate"})
"""Components whose pods do something once, and end."""


@dataclass
class Kubelets(Training):
    """All kubelets, and the settings by which a test makes them behave otherwise."""

    gpus: int = 8
    pod_results: Callable[[str, Object], OrderResult | None] = lambda _component, _pod: None
    """Another result than success for one of our pods, by component and pod; None: success."""
    hangs: Callable[[Object], bool] = lambda _pod: False
    """Whether the pod of a node upgrade works for ever."""
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
    reboots: list[tuple[str, str]] = field(default_factory=list)
    """Nodes that a node upgrade rebooted, each with its new kernel."""
    clocks: dict[str, timedelta] = field(default_factory=dict)
    """How far the clocks of nodes are ahead of the API server's; none unless given."""
    shows_boot_after: int = 5
    """Seconds from a reboot until the Node object shows it."""
    _booting: dict[str, tuple[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Follow what decides about devices, and the pods that a kubelet has something to do for."""
        self._device_marks = Marks(self.store, {NODES: _node_offers, PODS: _plugin_pods})
        self._attended = Subset(self.store, PODS, _is_attended)

    def _devices(self) -> None:
        """The kubelet offers devices while a device plugin is registered."""
        settings = (self.gpus, self.external_plugin, self.partitions, dict(self.unwell), set(self.in_parts))
        if not self._device_marks.begin(settings):
            return
        for node in self.store.seen(NODES):
            name = node["metadata"]["name"]
            if name not in self._device_marks:
                continue
            plugins = [
                pod for pod in self.store.on_node(name) if _component_of(pod) == "device-plugin" and is_ready(pod)
            ]
            plugin = self.external_plugin or bool(plugins)
            each = self.partitions or max(map(shares_per_device, plugins), default=1)
            well = self.gpus - self.unwell.get(name, 0)
            patch: Object = {"status": {"allocatable": {self._resource: str(well * each) if plugin else "0"}}}
            if plugin:
                patch["status"]["capacity"] = {self._resource: str(self.gpus * each)}
            if name in self.in_parts:
                patch = {"status": {key: {RESOURCE: 0, PARTITION: 7 * well} for key in ("allocatable", "capacity")}}
            self.store.change(NODES, name, patch)
            if other := offered_resources(well * each, plugins=plugins, before=node):
                self.store.change(NODES, name, other)

    @property
    def _resource(self) -> str:
        return PARTITION if self.partitions else RESOURCE

    def _pods(self) -> None:
        """Kubelets: bound pods run, our node pods end, deleted pods go."""
        for pod in self._attended.seen():
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
            elif _component_of(pod) in READERS:
                self._read_features(pod)
            elif phase == "Running" and _component_of(pod) in ONE_SHOT:
                self._end_node_pod(pod)

    def _start(self, pod: Object) -> None:
        if gpus_of(pod) and pod["spec"]["nodeName"] in self.refuses_devices:
            refused = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}
            self.store.change(PODS, pod["metadata"]["name"], {"status": refused}, pod["metadata"]["namespace"])
            return
        ahead = self.clocks.get(pod["spec"]["nodeName"], timedelta())
        status = {
            "phase": "Running",
            "startTime": timing.format_time(self.cluster.clock.now() + ahead),
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
        component = _component_of(pod)
        if component == "node-features":
            ended = self.features(self.store.read(NODES, pod["spec"]["nodeName"]))
        elif component == "feature-discovery" and reads_at_start(pod):
            ended = self.loaded(self.store, pod, self.gpus)
        else:
            return
        status = {"initContainerStatuses": [{"name": "read", "state": {"terminated": ended}}]}
        if ended is not None and pod["status"].get("initContainerStatuses") != status["initContainerStatuses"]:
            self.store.change(PODS, pod["metadata"]["name"], {"status": status}, pod["metadata"]["namespace"])

    def _end_node_pod(self, pod: Object) -> None:
        component = pod["metadata"]["labels"][names.LABEL_COMPONENT]
        if component == "upgrade" and self.hangs(pod):
            return
        result = self.pod_results(component, pod) or OrderResult(reason=Reason.DONE, message="done")
        ok = result.reason is Reason.DONE
        if component == "upgrade" and ok:
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
        """What an upgrade changes: the kubelet's version at once, the kernel with a boot that the Node shows later."""
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
            lost = self.store.stored(NODES, name) is None
            if seconds > 0 and not lost:
                self._booting[name] = (seconds - 1, kernel)
                continue
            del self._booting[name]
            if not lost:
                boot = {"kernelVersion": kernel, "bootID": f"boot-of-{kernel}-{name}"}
                self.store.change(NODES, name, {"status": {"nodeInfo": boot}})

    def _gone(self, pod: Object) -> None:
        trainer = self._trainer(pod)
        if trainer is not None:
            trainer.lost = max(trainer.lost, trainer.step - trainer.saved)
            trainer.stops += 1
        self.store.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])


def _component_of(pod: Object) -> str:
    component: str = (pod["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT, "")
    return component


def _is_attended(pod: Object) -> bool:
    """Whether a kubelet may have something to do for a pod, now or when a hook gives another result."""
    if not pod.get("spec", {}).get("nodeName"):
        return False
    phase, component = pod.get("status", {}).get("phase"), _component_of(pod)
    stops = bool(pod["metadata"].get("deletionTimestamp"))
    return stops or phase == "Pending" or component in READERS or (phase == "Running" and component in ONE_SHOT)


def _node_offers(node: Object) -> Iterator[tuple[Hashable, object]]:
    """What a node offers now, by its name."""
    status = node.get("status", {})
    yield node["metadata"]["name"], (status.get("allocatable"), status.get("capacity"))


def _plugin_pods(pod: Object) -> Iterator[tuple[Hashable, object]]:
    """Pods of device plugins, by their node."""
    if _component_of(pod) == "device-plugin":
        yield pod.get("spec", {}).get("nodeName", ""), pod
