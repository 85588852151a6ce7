"""The kubelets of the simulated cluster: they offer devices, run pods and boot nodes."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from upgrader.api import names
from upgrader.api.resources import NODES, PODS
from upgrader.core import timing
from upgrader.core.node_protocol.orders import FORMER_BOOT, ORDER_VARIABLE, OrderResult, Reason, UpgradeOrder
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore
from upgrader_dev.simulated.cluster.changes import Marks, Subset
from upgrader_dev.simulated.cluster.devices import offered_resources, shares_per_device
from upgrader_dev.simulated.cluster.placing import PARTITION, RESOURCE, gpus_of, is_ready
from upgrader_dev.simulated.cluster.readings import read_loaded_driver, read_node_features, reads_at_start
from upgrader_dev.simulated.cluster.trainers import Training

READERS = frozenset({"node-features", "feature-discovery"})
"""Components whose pods report facts of their node."""

_DONE = OrderResult(reason=Reason.DONE, message="done")

ONE_SHOT = frozenset({"prepare", "upgrade", "validate"})
"""Components whose pods run once and end."""


@dataclass
class Kubelets(Training):
    """All kubelets, and settings by which a test changes their behaviour."""

    gpus: int = 8
    pod_results: Callable[[str, Object], OrderResult | None] = lambda _component, _pod: None
    """A result other than success for a node pod, by component and pod; None: success."""
    hangs: Callable[[Object], bool] = lambda _pod: False
    """Whether the pod of a node upgrade never ends."""
    features: Callable[[Object], Object | None] = read_node_features
    """The terminated state of the container that reads node features; None: not read yet."""
    loaded: Callable[[ObjectStore, Object, int], Object | None] = read_loaded_driver
    """The terminated state of the container that reads the loaded driver, with the number of GPUs."""
    external_plugin: bool = False
    """Whether a device plugin of another vendor runs on every node."""
    partitions: int = 0
    in_parts: set[str] = field(default_factory=set)
    """The number of devices, with their own resource name, for each GPU; 0: whole GPUs, except on `in_parts` nodes."""
    unhealthy: dict[str, int] = field(default_factory=dict)
    """GPUs of a node that its plugin reports as unhealthy."""
    refuses_devices: set[str] = field(default_factory=set)
    """Nodes whose kubelet has no registered device plugin, and rejects pods with devices."""
    ignores_sigterm: set[str] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    """Nodes whose kubelet is stopped."""
    reboots: list[tuple[str, str]] = field(default_factory=list)
    """Nodes that a node upgrade rebooted, with their new kernel."""
    clocks: dict[str, timedelta] = field(default_factory=dict)
    """Offsets of node clocks from the API server's clock; zero by default."""
    shows_boot_after: int = 5
    """Seconds from a reboot until the Node object shows it."""
    stuck_drivers: set[str] = field(default_factory=set)
    """Nodes whose driver cannot be unloaded until they reboot."""
    _booting: dict[str, tuple[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Track the facts that decide about devices, and the pods that need a kubelet."""
        self._device_marks = Marks(self.store, {NODES: _node_offers, PODS: _plugin_pods})
        self._active_pods = Subset(self.store, PODS, _is_active)

    def _offer_devices(self) -> None:
        """The kubelet offers devices while a device plugin is registered."""
        settings = (self.gpus, self.external_plugin, self.partitions, dict(self.unhealthy), set(self.in_parts))
        if not self._device_marks.start_round(settings):
            return
        for node in self.store.list_values(NODES):
            name = node["metadata"]["name"]
            if name not in self._device_marks:
                continue
            plugins = [
                pod for pod in self.store.pods_on_node(name) if _component_of(pod) == "device-plugin" and is_ready(pod)
            ]
            plugin = self.external_plugin or bool(plugins)
            shares = self.partitions or max(map(shares_per_device, plugins), default=1)
            healthy = self.gpus - self.unhealthy.get(name, 0)
            patch: Object = {"status": {"allocatable": {self._resource: str(healthy * shares) if plugin else "0"}}}
            if plugin:
                patch["status"]["capacity"] = {self._resource: str(self.gpus * shares)}
            if name in self.in_parts:
                patch = {"status": {key: {RESOURCE: 0, PARTITION: 7 * healthy} for key in ("allocatable", "capacity")}}
            self.store.change(NODES, name, patch)
            if other := offered_resources(healthy * shares, plugins=plugins, before=node):
                self.store.change(NODES, name, other)

    @property
    def _resource(self) -> str:
        return PARTITION if self.partitions else RESOURCE

    def _run_pods(self) -> None:
        """Kubelets start bound pods, end node pods, and remove deleted pods."""
        for pod in self._active_pods.list_values():
            meta, phase = pod["metadata"], pod["status"].get("phase")
            node = pod["spec"].get("nodeName")
            if not node or node in self.down or self.store.find_stored(NODES, node) is None:
                continue
            if meta.get("deletionTimestamp"):
                if meta["name"] not in self.ignores_sigterm:
                    self._remove_pod(pod)
            elif phase == "Pending":
                self._start_pod(pod)
                self._read_features(pod)
            elif _component_of(pod) in READERS:
                self._read_features(pod)
            elif phase == "Running" and _component_of(pod) in ONE_SHOT:
                self._end_node_pod(pod)

    def _start_pod(self, pod: Object) -> None:
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
                {"name": container["name"], "ready": True, "state": {}}
                for container in pod["spec"].get("containers", [])
            ],
        }
        self.store.change(PODS, pod["metadata"]["name"], {"status": status}, pod["metadata"]["namespace"])
        trainer = self._find_trainer(pod)
        if trainer is not None:
            trainer.step = min(trainer.step, trainer.saved)

    def _read_features(self, pod: Object) -> None:
        """Once for each boot: the kubelet runs the init containers again for a pod without a sandbox."""
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
        result = self.pod_results(component, pod)
        if result is None:
            result = self._upgrade_result(pod) if component == "upgrade" else _DONE
        ok = result.reason is Reason.DONE
        if component == "upgrade" and ok:
            self._apply_upgrade(pod)
        message = msgspec.json.encode(result).decode()
        ended = {"terminated": {"exitCode": 0 if ok else 1, "message": message}}
        statuses = [{"name": container["name"], "state": ended} for container in pod["spec"]["containers"]]
        self.store.change(
            PODS,
            pod["metadata"]["name"],
            {"status": {"phase": "Succeeded" if ok else "Failed", "containerStatuses": statuses}},
            pod["metadata"]["namespace"],
        )

    def _upgrade_result(self, pod: Object) -> OrderResult:
        order, name = _upgrade_order(pod), pod["spec"]["nodeName"]
        if name in self.stuck_drivers and order.unload is not None and order.reboot is None:
            return OrderResult(reason=Reason.DEVICE_FAILED, message="the driver cannot be unloaded")
        if self._rebooted_into(order, name):
            facts = {FORMER_BOOT: self.store.read(NODES, name)["status"]["nodeInfo"].get("bootID", "")}
            return OrderResult(reason=Reason.DONE, message="rebooted", facts=facts)
        return _DONE

    def _rebooted_into(self, order: UpgradeOrder, name: str) -> str:
        """The kernel into which an upgrade reboots its node; empty if it does not."""
        if order.reboot is None:
            return ""
        stuck = order.unload is not None and name in self.stuck_drivers
        same = self.store.read(NODES, name)["status"]["nodeInfo"]["kernelVersion"] == order.reboot.kernel
        return order.reboot.kernel if not same or (stuck and order.reboot.only_after_failed_unload) else ""

    def _apply_upgrade(self, pod: Object) -> None:
        """The effects of an upgrade: the kubelet's version now, the kernel with a boot that the Node shows later."""
        order, name = _upgrade_order(pod), pod["spec"]["nodeName"]
        if order.kubelet is not None:
            version = {"nodeInfo": {"kubeletVersion": f"v{order.kubelet.version}"}}
            self.store.change(NODES, name, {"status": version})
        if kernel := self._rebooted_into(order, name):
            self.reboots.append((name, kernel))
            self._booting[name] = (self.shows_boot_after, kernel)
            self.stuck_drivers.discard(name)

    def _boot_nodes(self) -> None:
        for name, (seconds, kernel) in list(self._booting.items()):
            lost = self.store.find_stored(NODES, name) is None
            if seconds > 0 and not lost:
                self._booting[name] = (seconds - 1, kernel)
                continue
            del self._booting[name]
            if not lost:
                boot = {"kernelVersion": kernel, "bootID": f"boot-{len(self.reboots)}-of-{kernel}-{name}"}
                self.store.change(NODES, name, {"status": {"nodeInfo": boot}})

    def _remove_pod(self, pod: Object) -> None:
        trainer = self._find_trainer(pod)
        if trainer is not None:
            trainer.lost = max(trainer.lost, trainer.step - trainer.saved)
            trainer.stops += 1
        self.store.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])


def _upgrade_order(pod: Object) -> UpgradeOrder:
    (container,) = pod["spec"]["containers"]
    (text,) = (variable["value"] for variable in container["env"] if variable["name"] == ORDER_VARIABLE)
    return msgspec.json.decode(text, type=UpgradeOrder)


def _component_of(pod: Object) -> str:
    component: str = (pod["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT, "")
    return component


def _is_active(pod: Object) -> bool:
    """Whether a kubelet may have to act on a pod, now or when a hook returns another result."""
    if not pod.get("spec", {}).get("nodeName"):
        return False
    phase, component = pod.get("status", {}).get("phase"), _component_of(pod)
    stops = bool(pod["metadata"].get("deletionTimestamp"))
    return stops or phase == "Pending" or component in READERS or (phase == "Running" and component in ONE_SHOT)


def _node_offers(node: Object) -> Iterator[tuple[Hashable, object]]:
    """The resources that a node offers, by node name."""
    status = node.get("status", {})
    yield node["metadata"]["name"], (status.get("allocatable"), status.get("capacity"))


def _plugin_pods(pod: Object) -> Iterator[tuple[Hashable, object]]:
    """Pods of device plugins, by node name."""
    if _component_of(pod) == "device-plugin":
        yield pod.get("spec", {}).get("nodeName", ""), pod
