"""Machines of the fleet that reboot by themselves, and what of it is seen when: pods, Ready, the Node's kernel, labels.

A driver works on the kernel that it is for and nowhere else, whatever the Node object says meanwhile.
"""

import json
from dataclasses import dataclass, field

from tests.support.drifting import KERNEL, NEXT
from tests.support.pools import labels_of
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, NODES, PODS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.phases import UpgradeReason, is_final
from upgrader.core.node_protocol.orders import ORDER_VARIABLE, OrderResult, Reason
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import RESOURCE, Rig

POD_RESULTS = frozenset({"prepare", "upgrade", "validate"})


@dataclass(frozen=True, kw_only=True)
class Reboot:
    """A reboot into a kernel, with the seconds after which its parts are seen."""

    kernel: str
    boot: str
    away: int = 3
    """How long no kubelet runs; what it ran has died with the machine."""
    ready: int = 3
    info: int = 3
    """From then on the Node has the new kernel and bootID, which a kubelet writes at once."""
    label: int = 3
    reruns: bool = False
    """Whether a pod that ran goes on from its beginning; otherwise it has failed."""


@dataclass
class Machines:
    """Made one of `rig.others`, it plays the machines second by second; `rig.fleet.pod_results` is answered by it."""

    rig: Rig
    runs: dict[str, str]
    """The kernel that a machine runs, whatever its Node says."""
    _at: dict[str, tuple[int, Reboot]] = field(default_factory=dict)
    _had: dict[str, Object] = field(default_factory=dict)
    """Status that pods had when their machine went down, by uid; their kubelet says nothing else while it is away."""

    def reboot(self, name: str, reboot: Reboot) -> None:
        self.runs[name] = reboot.kernel
        self._at[name] = (self.rig.seconds, reboot)
        self._had |= {pod["metadata"]["uid"]: pod["status"] for pod in self._pods(name, POD_RESULTS)}

    def pod_result(self, component: str, pod: Object) -> OrderResult | None:
        kernel = self.runs[pod["spec"]["nodeName"]]
        if component == "prepare" and (planned := _order(pod)["kernel"]) != kernel:
            said = f"the node runs kernel {kernel}, the upgrade was planned for {planned}"
            return OrderResult(reason=Reason.KERNEL_MISMATCH, message=said)
        return None

    def __call__(self) -> None:
        for name, (since, reboot) in self._at.items():
            self._seen(name, self.rig.seconds - since, reboot)
        for name in self.runs:
            self._drivers(name)

    def _seen(self, name: str, after: int, reboot: Reboot) -> None:
        change = self.rig.cluster.store.change
        for pod in self._pods(name, POD_RESULTS):
            uid = pod["metadata"]["uid"]
            if after <= reboot.away:
                self._had.setdefault(uid, {"phase": "Pending"})
                self._is(pod, self._had[uid])
            elif uid in self._had and self._had.pop(uid).get("phase") == "Running" and not reboot.reruns:
                self._is(pod, _died(pod))
        ready = "True" if after > reboot.ready else "Unknown"
        change(NODES, name, {"status": {"conditions": [{"type": "Ready", "status": ready}]}})
        if after > reboot.info:
            info = {"kernelVersion": reboot.kernel, "bootID": reboot.boot}
            change(NODES, name, {"status": {"nodeInfo": info}})
        if after > reboot.label:
            change(NODES, name, {"metadata": {"labels": {names.LABEL_KERNEL_NFD: reboot.kernel}}})

    def _drivers(self, name: str) -> None:
        """A driver's pod is ready on its own kernel, and what stands on it where one is."""
        since, reboot = self._at.get(name, (0, None))
        up = reboot is None or self.rig.seconds - since > reboot.away
        kernels = {
            one["status"].get("key"): one["spec"]["kernel"]
            for one in self.rig.cluster.store.copy_all(DRIVER_IMAGES)
            if "status" in one
        }
        drivers = self._pods(name, {"driver"})
        fits = [
            up and kernels.get(one["metadata"]["labels"][names.LABEL_IMAGE_KEY]) == self.runs[name] for one in drivers
        ]
        for pod, fit in zip(drivers, fits, strict=True):
            self._ready(pod, ready=fit)
        for pod in self._pods(name, {"device-plugin"}):
            self._ready(pod, ready=any(fits))

    def _ready(self, pod: Object, *, ready: bool) -> None:
        if pod["status"].get("phase") == "Running":
            self._is(pod, {"conditions": [{"type": "Ready", "status": str(ready)}]})

    def _is(self, pod: Object, status: Object) -> None:
        meta = pod["metadata"]
        self.rig.cluster.store.change(
            PODS, meta["name"], {"status": {"containerStatuses": None} | status}, meta["namespace"]
        )

    def _pods(self, name: str, components: frozenset[str] | set[str]) -> list[Object]:
        return [
            pod
            for pod in self.rig.cluster.store.pods_on_node(name)
            if pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) in components
        ]


def _order(pod: Object) -> Object:
    variables = {
        one["name"]: one.get("value", "") for container in pod["spec"]["containers"] for one in container.get("env", [])
    }
    found: Object = json.loads(variables[ORDER_VARIABLE])
    return found


def _died(pod: Object) -> Object:
    ended = {"terminated": {"exitCode": 255, "reason": "Unknown"}}
    return {
        "phase": "Failed",
        "containerStatuses": [{"name": one["name"], "state": ended} for one in pod["spec"]["containers"]],
    }


NODE = "gpu-2"
THERE = Reboot(kernel=NEXT, boot="boot-2", away=0, ready=0, info=0, label=0)
THIRD = "6.1.0-53-amd64"
BACK = Reboot(kernel=KERNEL, boot="boot-3")


class Twice(Rig):
    """Three nodes on driver 1.0, a gang on two of them; the third is the one that reboots."""

    machines: Machines
    versions: dict[str, str]
    """Of the driver, by revision."""

    async def begin(self) -> None:
        """The third reboots for the first time."""
        await self.train()
        self.machines.reboot(NODE, THERE)

    async def train(self) -> None:
        nodes = ("gpu-0", "gpu-1", NODE)
        for name in nodes:
            self.fleet.add_node(name)
        for kernel in (KERNEL, NEXT, THIRD):
            self.put_image("1.0", kernel=kernel)
        self.versions = {self.apply_stack(self.make_spec("1.0")): "1.0"}
        await self.settle()
        self.fleet.add_job("gang", members=2, gpus=8)
        await self.run_until(lambda: self.fleet.trainers["gang"].step > 3)
        self.machines = Machines(self, dict.fromkeys(nodes, KERNEL))
        self.others.append(self.machines)
        self.fleet.pod_results = self.machines.pod_result

    def newer(self, *kernels: str) -> None:
        """A plan to driver 2.0, of which there are images for these kernels."""
        for kernel in kernels:
            self.put_image("2.0", kernel=kernel)
        revision = self.apply_stack(self.make_spec("2.0"))
        self.versions[revision] = "2.0"
        self.apply_plan("newer", revision)

    def back(self) -> list[NodeUpgrade]:
        return [one for one in self.upgrades() if one.spec.reason is UpgradeReason.REPAIR]

    def in_service(self) -> bool:
        """Everything that a person would look at, on the kernel that the machine has."""
        stack = self.stack_now().status
        return (
            self.serves(NODE)
            and labels_of(self, NODE).get(names.LABEL_REVISION) == stack.current_revision
            and all(is_final(one.status.phase) for one in self.upgrades())
            and (stack.drifted, stack.ready) == (0, 3)
        )

    def serves(self, name: str) -> bool:
        """On its third boot, with its revision's driver for its machine's kernel and all its GPUs, unmarked."""
        node = self.cluster.store.find(NODES, name)
        version = self.versions.get(labels_of(self, name).get(names.LABEL_REVISION, ""))
        fitting = {
            one["status"].get("key")
            for one in self.cluster.store.copy_all(DRIVER_IMAGES)
            if "status" in one
            and (one["spec"]["version"], one["spec"]["kernel"]) == (version, self.machines.runs[name])
        }
        return (
            labels_of(self, name)[names.LABEL_DRIVER] in fitting
            and labels_of(self, name)[names.LABEL_OPERANDS] == names.ON
            and node["status"]["allocatable"][RESOURCE] == "8"
            and node["status"]["nodeInfo"]["bootID"] == "boot-3"
            and not node["spec"].get("taints")
            and names.ANNOTATION_CLAIMED_BY not in node["metadata"].get("annotations", {})
        )

    async def comes_to_rest(self, *, seconds: int) -> None:
        await self.run_until(self.in_service, seconds)
        before = {one.metadata.uid for one in self.upgrades()}
        for _ in range(60):
            await self.run_second()
        later = {one.metadata.uid for one in self.upgrades()} - before
        assert (self.in_service(), later) == (True, set()), self.describe_state()
        gang = self.fleet.trainers["gang"]
        assert (gang.stops, gang.lost, self.requests()) == (0, 0, [])
        self.assert_nothing_left()
