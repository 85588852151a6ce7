"""Orders of node upgrades as Jobs on a node of an embedded cluster, from the node image, without a controller."""

import asyncio
from typing import Any

import msgspec

from tests.support.programs import soon
from upgrader.core.node_protocol.orders import OrderResult, Reason, UpgradeOrder
from upgrader.images.layout import Layout
from upgrader.images.registry.client import RegistryClient
from upgrader.stack.node_pods.commands import HOST_NAMESPACES, host_command
from upgrader.stack.node_pods.upgrade_pods import BUSY, OCCUPIED, REPORTED_FAILURES
from upgrader.stack.parts import host_path
from upgrader.stack.settings import StackSettings
from upgrader_dev.devcluster import DevCluster


class OrderJobs:
    """Runs orders on one node. `image` is the node image."""

    def __init__(self, cluster: DevCluster, node: str, image: Layout) -> None:
        self._api, self._node = cluster.api, node
        self._settings = StackSettings(node_image=asyncio.run(_push(cluster.registry, image)))
        space = self._settings.namespace
        privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
        self._api.create("/api/v1/namespaces", {"metadata": {"name": space, "labels": privileged}})
        self._pods, self._jobs = f"/api/v1/namespaces/{space}/pods", f"/apis/batch/v1/namespaces/{space}/jobs"

    def start(self, order: UpgradeOrder) -> None:
        """Create the Job of an order, as upgrader.stack does; a pod that is killed is run again."""
        pod = {
            "nodeName": self._node,
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [host_command("upgrade", order, self._settings)],
            "volumes": [host_path("host", "/")],
            **HOST_NAMESPACES,
        }
        rules = [
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [BUSY, OCCUPIED]}},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": list(REPORTED_FAILURES)}},
        ]
        spec = {"backoffLimit": 6, "podFailurePolicy": {"rules": rules}, "template": {"spec": pod}}
        assert self._api.create(self._jobs, {"metadata": {"name": order.upgrade}, "spec": spec})

    def wait(self, order: UpgradeOrder, seconds: float) -> OrderResult:
        """The result of an order: that of the first pod that was not refused because another order runs."""
        selector = f"?labelSelector=batch.kubernetes.io/job-name={order.upgrade}"

        def find_result() -> OrderResult | None:
            pods: list[dict[str, Any]] = (self._api.get(f"{self._pods}{selector}") or {}).get("items", [])
            states = [one["state"] for pod in pods for one in pod["status"].get("containerStatuses", [])]
            messages = [state["terminated"].get("message", "") for state in states if "terminated" in state]
            results = [msgspec.json.decode(text, type=OrderResult) for text in messages if text.startswith("{")]
            return next((result for result in results if result.reason is not Reason.OCCUPIED), None)

        found = soon(find_result, seconds)
        assert isinstance(found, OrderResult)
        return found

    def run(self, order: UpgradeOrder, seconds: float = 300) -> OrderResult:
        """Start and wait."""
        self.start(order)
        return self.wait(order, seconds)


async def _push(registry: str, image: Layout) -> str:
    async with RegistryClient(insecure=(registry,)) as client:
        reference: str = await client.push(image, f"{registry}/gpu-upgrader/node")
        return reference
