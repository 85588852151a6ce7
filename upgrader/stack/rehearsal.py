"""Pods that a node upgrade makes once jobs have stopped, to be shown to the API server while they still run. Pure.

An API server refuses a pod for what no look at a node tells: a RuntimeClass or PriorityClass that is not there, a
quota, PodSecurity, an admission webhook.
"""

import msgspec
from msgspec import Struct

from upgrader.api.resources import NODE_UPGRADES
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.model.fleet import ImageFacts, NodeFacts
from upgrader.core.model.operands import PluginSettings
from upgrader.stack.node_pods import offered, plugin_settings, upgrade_job, validation_pod
from upgrader.stack.operands import driver_daemonset, plugin_daemonset, runtime_daemonset
from upgrader.stack.parts import Manifest, owned_by
from upgrader.stack.settings import StackSettings


class Rehearsal(Struct, frozen=True, kw_only=True):
    """Pods of the way there, and those of the way back that may differ from them in more than an image."""

    there: list[Manifest]
    back: list[Manifest]


def rehearsal(upgrade: NodeUpgrade, node: NodeFacts, settings: StackSettings) -> Rehearsal:
    """What a node upgrade will make.

    Pods of Jobs and DaemonSets have the name of these, stand on the node as they will, and belong to the upgrade, since
    policies ask for somebody to whom a pod belongs.

    Args:
        upgrade: the upgrade.
        node: its node, as it is before.
        settings: of everything on nodes.
    """
    stack, target, source = upgrade.spec.stack, upgrade.spec.target, upgrade.spec.source
    made = [upgrade_job(upgrade, reverting=False, settings=settings), *_operands(stack, target, settings)]
    after = _offering(upgrade, node)
    there = [validation_pod(upgrade, reverting=False, node=after, settings=settings)]
    there += [_pod(one, upgrade) for one in made]
    back = []
    if source.driver_key:
        back.append(validation_pod(upgrade, reverting=True, node=node, settings=settings))
    if source.plugin_key not in {"", target.plugin_key}:
        back.append(_pod(_plugin(stack, source, plugin_settings(source), settings), upgrade))
    return Rehearsal(there=there, back=back)


def _offering(upgrade: NodeUpgrade, node: NodeFacts) -> NodeFacts:
    """The node as it offers its GPUs after the upgrade; one GPU where that is not known."""
    source, target = upgrade.spec.source, upgrade.spec.target
    if (source.mig_strategy, source.shares) == (target.mig_strategy, target.shares):
        return node
    return msgspec.structs.replace(node, gpus_allocatable=offered(upgrade, target, node.gpus), gpus_in_parts=())


def _operands(stack: str, state: NodeState, settings: StackSettings) -> list[Manifest]:
    image = ImageFacts(
        key=state.driver_key,
        vendor=state.driver_vendor,
        version=state.driver_version,
        kernel=state.kernel,
        digest=state.driver_image,
    )
    found, plugin = [driver_daemonset(stack, image, settings)], plugin_settings(state)
    if state.runtime_key:
        found.append(runtime_daemonset(stack, state.runtime_key, state.runtime_image, plugin, settings))
    if state.plugin_key:
        found.append(_plugin(stack, state, plugin, settings))
    return found


def _plugin(stack: str, state: NodeState, plugin: PluginSettings, settings: StackSettings) -> Manifest:
    return plugin_daemonset(stack, state.plugin_key, state.plugin_image, plugin, settings)


def _pod(owner: Manifest, upgrade: NodeUpgrade) -> Manifest:
    template, meta = owner["spec"]["template"], owner["metadata"]
    named = {"name": meta["name"], "namespace": meta["namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], **named, "ownerReferences": [owned_by(NODE_UPGRADES, upgrade.metadata)]},
        "spec": {**template["spec"], "nodeName": upgrade.spec.node.name},
    }
