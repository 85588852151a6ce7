"""A stack with every operand in service on kwok nodes: with what upgrades, kubelets and our pods would have written.

There is no kubelet: kwok calls the operands' pods Ready, and the reports of those that read their node are written here
as a kubelet would carry them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec

from tests.bench.plan import KERNEL
from upgrader.api import names
from upgrader.api.kubernetes import Node, Pod, Wire
from upgrader.api.resources import DAEMONSETS, GPU_STACKS, NODES, PODS
from upgrader.core.model.fleet import Target
from upgrader.core.model.operands import COMPONENTS
from upgrader.core.model.revisions import plugin_key_of, runtime_key_of
from upgrader.core.node_protocol.gpu_features import GpuRecord, GpuReport
from upgrader.core.node_protocol.node_features import FeatureRecord, FeatureReport, feature_labels
from upgrader.kube.client import KubeCluster
from upgrader.reconcile.observe.revisions import ensure_revision
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.naming import NODE_FEATURES
from upgrader_dev.demo import manifests, waiting
from upgrader_dev.vendor.labels import gpu_labels

STACK = "pool"
POOL = {"bench": "in"}
VERSION = "1.0.0"
GPUS = 8
READS = {NODE_FEATURES, "feature-discovery"}
RUN = sorted([*COMPONENTS, NODE_FEATURES])
"""Of each there is a pod on every node."""
AT_ONCE = 16

T = TypeVar("T")


class Ready(Wire, frozen=True, kw_only=True):
    number_ready: int = 0


class Running(Wire, frozen=True, kw_only=True):
    """A DaemonSet, as far as it says on how many nodes it is ready."""

    status: Ready = Ready()


def body(image: str) -> manifests.Manifest:
    """The stack; any pinned image stands for its operands, since no pod of them is started here."""
    made = manifests.stack_manifest(STACK, driver=VERSION, plugin=image, kubelet="1.34.4", artifact=image)
    managed_part = {"management": "Managed", "image": image}
    made["spec"] |= {
        "nodeSelector": POOL,
        "runtime": managed_part,
        "featureDiscovery": managed_part,
        "monitoring": managed_part,
        "nodeFeatures": "Auto",
        "onDrift": "Approve",
        "driftPlan": {"limits": {"maxInterruptions": 0}},
    }
    return made


async def install(
    kube: KubeCluster, context: Context, image: str, driver_key: str, step: Callable[[], Awaitable[object]]
) -> None:
    """All nodes as upgrades and reports have left them, each with its operands' pods."""
    await kube.apply(GPU_STACKS, body(image))
    stack = await kube.get(GPU_STACKS, STACK)
    target = await ensure_revision(context, stack) if stack is not None else "it was just applied"
    if not isinstance(target, Target):
        raise TypeError(target)
    found = await kube.list(NODES)
    marks = _marks(target, driver_key)
    await _each(found, lambda node: _marked(kube, node, marks))

    async def seen() -> bool:
        known = (context.nodes.snapshot() or {}).values()
        return sum(one.metadata.labels.get("bench") == "in" for one in known) == len(found)

    await waiting.poll_until(seen, 300, "the labels are seen")
    await step()  # makes the DaemonSets
    await _pods_run(kube, context, len(found))
    boots = {node.metadata.name: node.status.node_info.boot_id for node in found}
    reading = [one for one in await _pods(kube, context) if one.metadata.labels[names.LABEL_COMPONENT] in READS]
    await _each(reading, lambda pod: _reported(kube, pod, boots[pod.spec.node_name]))


def _marks(target: Target, driver_key: str) -> dict[str, str]:
    return {
        **POOL,
        names.LABEL_DRIVER: driver_key,
        names.LABEL_RUNTIME: runtime_key_of(target),
        names.LABEL_DEVICE_PLUGIN: plugin_key_of(target),
        names.LABEL_OPERANDS: names.ON,
        names.LABEL_REVISION: target.revision,
    }


async def _marked(kube: KubeCluster, node: Node, marks: dict[str, str]) -> None:
    """What an upgrade writes and both labellers write, with their records: 2,000 nodes by steps take minutes."""
    boot_id = node.status.node_info.boot_id
    features, gpus = feature_labels(_features(boot_id)), gpu_labels(_gpus(boot_id), 0)
    records = {
        names.ANNOTATION_NODE_FEATURES: FeatureRecord(stack=STACK, boot_id=boot_id, labels=features),
        names.ANNOTATION_GPU_FEATURES: GpuRecord(stack=STACK, labels=gpus),
    }
    noted = {name: msgspec.json.encode(record).decode() for name, record in records.items()}
    labels = node.metadata.labels | marks | features | gpus
    changes = {"labels": labels, "annotations": node.metadata.annotations | noted}
    orders = [{"op": "add", "path": f"/metadata/{name}", "value": value} for name, value in changes.items()]
    await kube.edit(NODES, node.metadata, orders)


async def _reported(kube: KubeCluster, pod: Pod, boot_id: str) -> None:
    """What the container that reads said when it ended, in the status of its pod."""
    labeller = pod.metadata.labels[names.LABEL_COMPONENT] == NODE_FEATURES
    message = msgspec.json.encode(_features(boot_id) if labeller else _gpus(boot_id)).decode()
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
    said = {"name": "read", "image": "read", "imageID": "", "ready": True, "restartCount": 0, "state": ended}
    order = {"op": "add", "path": "/status/initContainerStatuses", "value": [said]}
    await kube.edit(PODS, pod.metadata, [order], "status")


def _features(boot_id: str) -> FeatureReport:
    return FeatureReport(boot_id=boot_id, uptime=10.0, kernel=KERNEL, os_id="debian", kernels=(KERNEL,))


def _gpus(boot_id: str) -> GpuReport:
    return GpuReport(boot_id=boot_id, uptime=10.0, version=VERSION, devices=GPUS)


async def _pods_run(kube: KubeCluster, context: Context, count: int) -> None:
    # as the DaemonSets count them: a list of all their pods takes the API server longer than the pods take to start
    kind = msgspec.structs.replace(DAEMONSETS, type=Running)

    async def running() -> bool:
        found = await kube.list(kind, context.stack.namespace, labels=f"{names.LABEL_STACK}={STACK}")
        return [one.status.number_ready for one in found] == [count] * len(RUN)

    await waiting.poll_until(running, 900, f"{len(RUN)} operands run on {count} nodes")


async def _pods(kube: KubeCluster, context: Context) -> list[Pod]:
    selector = f"{names.LABEL_COMPONENT} in ({','.join(RUN)}),{names.LABEL_STACK}={STACK}"
    return list(await kube.list(PODS, context.stack.namespace, labels=selector))


async def _each(items: Iterable[T], act: Callable[[T], Awaitable[None]]) -> None:
    """A few at once."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> None:
        async with turn:
            await act(item)

    await asyncio.gather(*map(one, items))
