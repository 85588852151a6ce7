"""A box of the embedded cluster with our operands on it, moved by hand: what the controller does, one act at a time."""

from pathlib import Path
from typing import Any

import msgspec

from tests.support import node_upgrades
from tests.support.programs import soon
from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.fleet import ImageFacts, NodeFacts
from upgrader.core.model.operands import PluginSettings
from upgrader.core.model.revisions import image_key, plugin_key
from upgrader.core.node_protocol.orders import OrderResult, UpgradeOrder
from upgrader.images.publish import Product, StaticPrograms, push_product
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.stack import manifests
from upgrader.stack.settings import StackSettings
from upgrader_dev.devcluster import BoxNode, DevCluster, cosign_program, kubelet_program

RESOURCE = "nvidia.com/gpu"
PLUGIN = PluginSettings(vendor="sim", driver_vendor="sim", resource_name=RESOURCE)
BROKEN = "1.35.9"
BINARY = "/var/lib/box/bin/kubelet"
SETTLED = 90.0
BUSY_SECONDS = 5
Object = dict[str, Any]


def broken_kubelet(folder: Path) -> Path:
    """A kubelet that says its version and does not start: what a wrong build or flag does to a node."""
    path = folder / "broken-kubelet"
    path.write_text(f'#!/bin/sh\n[ "$1" != --version ] || {{ echo Kubernetes v{BROKEN}; exit 0; }}\nexit 1\n')
    path.chmod(0o755)
    return path


class Workbench:
    """One node, the product's images in the cluster's registry, DaemonSets for two drivers and two plugins."""

    def __init__(self, cluster: DevCluster, node: str, folder: Path) -> None:
        self.cluster, self.api = cluster, cluster.api
        self.node: BoxNode = cluster.box_node(node)
        self.kernel = self.node.wait_ready().kernel
        self.product: Product = push_product(
            cluster.registry,
            drivers=("1.0.0", "2.0.0"),
            kernel=self.kernel,
            kubelets=("1.34.4", "1.35.4", BROKEN),
            programs=StaticPrograms(
                kubelet=lambda version: (
                    broken_kubelet(folder) if version == BROKEN else kubelet_program(version, print)
                ),
                cosign=lambda: cosign_program(print),
            ),
            progress=print,
        )
        self.settings = StackSettings(node_image=self.product.node)
        self._upgrades = 0
        self._lay_out()

    def state(self, driver: str, kubelet_version: str, plugin: str = "1") -> Object:
        """A ReportedNodeState of this node."""
        image, device_plugin = self.product.drivers[driver], self.product.plugins[plugin]
        return node_upgrades.state(
            driver,
            kubelet_version,
            "a",
            kernel=self.kernel,
            driverImage=image,
            driverKey=self._driver_key(driver),
            pluginImage=device_plugin,
            pluginKey=plugin_key(digest=device_plugin, resource_name=RESOURCE, more=(("vendor", "sim"),)),
            kubeletArtifact=self.product.kubelets[kubelet_version],
            kubeletBinary=BINARY,
        )

    def upgrade(self, source: Object, target: Object) -> NodeUpgrade:
        """A node upgrade that was not ordered before."""
        self._upgrades += 1
        made = node_upgrades.upgrade(source=source, target=target, node=self.node.name)
        identity = {"name": f"upgrade-{self._upgrades}", "uid": f"00000000-0000-0000-0000-{self._upgrades:012d}"}
        return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, **identity))

    def label(self, labels: dict[str, str | None]) -> None:
        """Labels of the node, as the Unloading and Loading phases set them."""
        assert self.api.patch(f"/api/v1/nodes/{self.node.name}", {"metadata": {"labels": labels}})

    def on(self, driver: str, plugin: str = "1") -> None:
        """Driver first, operands when it is ready."""
        state = self.state(driver, "1.34.4", plugin)
        self.label({names.LABEL_DRIVER: state["driverKey"], names.LABEL_DEVICE_PLUGIN: state["pluginKey"]})
        self.wait_operand("driver", state["driverKey"])
        self.label({names.LABEL_OPERANDS: names.ON})
        self.wait_operand("device-plugin", state["pluginKey"])

    def off(self) -> None:
        """No operand is left on the node."""
        self.label({names.LABEL_DRIVER: names.NONE, names.LABEL_OPERANDS: names.OFF})
        soon(lambda: not self.operands("driver") and not self.operands("device-plugin"), SETTLED)

    def operands(self, component: str) -> list[Object]:
        """Pods of an operand on this node."""
        path = f"{self.pods}?labelSelector={names.LABEL_COMPONENT}={component}"
        found: list[Object] = (self.api.get(path) or {})["items"]
        return [pod for pod in found if pod["spec"].get("nodeName") == self.node.name]

    def wait_operand(self, component: str, key: str) -> Object:
        """The ready pod of an operand's image."""

        def look() -> Object | None:
            pods = [pod for pod in self.operands(component) if pod["metadata"]["labels"][names.LABEL_IMAGE_KEY] == key]
            return next((pod for pod in pods if _is_ready(pod)), None)

        found = soon(look, SETTLED)
        assert isinstance(found, dict)
        return found

    def allocatable(self) -> str:
        """Devices that the kubelet offers."""
        node = self.api.get(f"/api/v1/nodes/{self.node.name}") or {}
        return str(node["status"]["allocatable"].get(RESOURCE, "0"))

    def wait_allocatable(self, count: str) -> None:
        """Until the kubelet offers so many devices."""
        soon(lambda: self.allocatable() == count, SETTLED)

    def run(self, manifest: Object) -> tuple[int, OrderResult]:
        """A prepare or validation pod, or an upgrade Job, to its end: exit code and answer of its last container."""
        manifest["metadata"].pop("ownerReferences", None)  # nobody made these objects' owner here
        name = manifest["metadata"]["name"]
        if manifest["kind"] == "Job":
            assert self.api.create(f"/apis/batch/v1/namespaces/{self.settings.namespace}/jobs", manifest)
            selector = f"?labelSelector=batch.kubernetes.io/job-name={name}"
            pods = soon(lambda: (self.api.get(f"{self.pods}{selector}") or {})["items"], SETTLED)
            assert isinstance(pods, list)
            name = pods[0]["metadata"]["name"]
        else:
            assert self.api.create(self.pods, manifest)
        return self.answer(name)

    def answer(self, pod: str) -> tuple[int, OrderResult]:
        """Exit code and termination message of a pod of the operator, when it has ended."""
        ended = soon(lambda: self._terminated(pod), SETTLED)
        assert isinstance(ended, dict)
        return ended["exitCode"], msgspec.json.decode(ended["message"], type=OrderResult)

    def prepare(self, upgrade: NodeUpgrade) -> tuple[int, OrderResult]:
        """The prepare pod's answer."""
        return self.run(manifests.prepare_pod(upgrade, self.settings))

    def run_upgrade(
        self, upgrade: NodeUpgrade, *, reverting: bool = False, job: str = "", patience: int = 60
    ) -> tuple[int, OrderResult]:
        """The upgrade Job's answer; `job` names it otherwise, so that the same upgrade can be run again.

        `patience` is how long a kubelet may take until it is healthy, in seconds.
        """
        manifest = manifests.upgrade_job(upgrade, reverting=reverting, settings=self.settings)
        manifest["metadata"]["name"] = job or manifest["metadata"]["name"]
        manifest["spec"]["suspend"] = False
        variable = manifest["spec"]["template"]["spec"]["containers"][0]["env"][0]
        order = msgspec.json.decode(variable["value"], type=UpgradeOrder)
        changed = msgspec.structs.replace(order, healthz_timeout=patience, busy_timeout=BUSY_SECONDS)
        variable["value"] = msgspec.json.encode(changed).decode()
        return self.run(manifest)

    def give_up(self, upgrade: NodeUpgrade) -> None:
        """Take the upgrade Job away, its pods first."""
        name = manifests.upgrade_name(upgrade, reverting=False)
        job = f"/apis/batch/v1/namespaces/{self.settings.namespace}/jobs/{name}"
        self.api.delete(f"{job}?propagationPolicy=Foreground")
        soon(lambda: self.api.get(job) is None, SETTLED)

    def validate(self, upgrade: NodeUpgrade, boot_id: str = "") -> tuple[int, OrderResult]:
        """The validation pod's answer; `boot_id` where it is told another than the node's."""
        node = self.facts()
        told = msgspec.structs.replace(node, boot_id=boot_id or node.boot_id)
        return self.run(manifests.validation_pod(upgrade, reverting=False, node=told, settings=self.settings))

    def facts(self) -> NodeFacts:
        """The node as the controller sees it."""
        found = self.api.get(f"/api/v1/nodes/{self.node.name}") or {}
        return node_facts(msgspec.convert(found, Node, strict=False), RESOURCE)

    @property
    def pods(self) -> str:
        """Where our pods are in the API."""
        return f"/api/v1/namespaces/{self.settings.namespace}/pods"

    def _terminated(self, pod: str) -> Object | None:
        found = self.api.get(f"{self.pods}/{pod}") or {}
        status = found.get("status", {})
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return None  # its devices are still its own
        for first in status.get("initContainerStatuses", []):
            failed = first["state"].get("terminated", {})
            if failed.get("exitCode", 0) == 0:
                continue
            assert _is_result(failed.get("message", "")), f"init container {first['name']}: {failed}"
            return failed
        return next((one["state"].get("terminated") for one in status.get("containerStatuses", [])), None)

    def _driver_key(self, version: str) -> str:
        return image_key(vendor="sim", version=version, kernel=self.kernel, digest=self.product.drivers[version])

    def _lay_out(self) -> None:
        space = self.settings.namespace
        privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
        self.api.create("/api/v1/namespaces", {"metadata": {"name": space, "labels": privileged}})
        account = {"metadata": {"name": self.settings.service_account}}
        self.api.create(f"/api/v1/namespaces/{space}/serviceaccounts", account)
        collection = f"/apis/apps/v1/namespaces/{space}/daemonsets"
        for version, image in self.product.drivers.items():
            facts = ImageFacts(
                key=self._driver_key(version), vendor="sim", version=version, kernel=self.kernel, digest=image
            )
            self.api.create(collection, manifests.driver_daemonset("stack", facts, self.settings))
        for image in self.product.plugins.values():
            key = plugin_key(digest=image, resource_name=RESOURCE, more=(("vendor", "sim"),))
            self.api.create(collection, manifests.plugin_daemonset("stack", key, image, PLUGIN, self.settings))


def _is_result(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=OrderResult)
    except msgspec.MsgspecError:
        return False
    return True


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    going = "deletionTimestamp" in pod["metadata"]
    return not going and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
