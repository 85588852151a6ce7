"""DaemonSets of operands that node labels select: one for each image, created before a node's label names it."""

from upgrader.api.resources import DAEMONSETS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.model.fleet import ImageFacts, Target
from upgrader.core.model.revisions import plugin_key_of, runtime_key_of
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests


async def ensure_daemonsets(context: Context, stack: GpuStack, target: Target, image: ImageFacts) -> None:
    """Apply the DaemonSets that a node's labels will select; this changes no node by itself."""
    name, key = stack.metadata.name, plugin_key_of(target)
    bodies = [manifests.driver_daemonset(name, image, context.stack)]
    runtime = runtime_key_of(target)
    if runtime:
        bodies.append(manifests.runtime_daemonset(name, runtime, target.runtime_digest, target.plugin, context.stack))
    if key:
        bodies.append(manifests.plugin_daemonset(name, key, target.plugin_digest, target.plugin, context.stack))
    for body in bodies:
        meta = body["metadata"]
        if await context.cluster.get(DAEMONSETS, meta["name"], meta["namespace"]) is None:
            context.leadership.check()
            # Without an owner: another stack may use the same image, and must not lose it with this stack.
            await context.cluster.apply(DAEMONSETS, body)
