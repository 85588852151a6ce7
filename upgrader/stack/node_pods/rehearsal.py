"""Pods that a node upgrade creates after jobs have stopped, for a dry run on the API server before that. Pure.

An API server rejects pods for reasons that a check of the node does not find: a missing RuntimeClass or
PriorityClass, a quota, PodSecurity, an admission webhook.
"""

import msgspec
from msgspec import Struct

from upgrader.api.resources import NODE_UPGRADES
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.model.fleet import ImageFacts, NodeFacts
from upgrader.core.model.operands import PluginSettings
from upgrader.stack.node_pods.node_states import expected_devices, plugin_settings
from upgrader.stack.node_pods.upgrade_pods import upgrade_job, validation_pod
from upgrader.stack.operands.upgraded_operands import driver_daemonset, plugin_daemonset, runtime_daemonset
from upgrader.stack.parts import Manifest, owner_reference
from upgrader.stack.settings import StackSettings


class Rehearsal(Struct, frozen=True, kw_only=True):
    """Pods of the upgrade, and those of a revert that may differ from them in more than an image."""

    forward: list[Manifest]
    revert: list[Manifest]


def rehearsal_pods(upgrade: NodeUpgrade, node: NodeFacts, settings: StackSettings) -> Rehearsal:
    """The pods that a node upgrade will create.

    Pods of Jobs and DaemonSets have the names of these, are bound to the node, and are owned by the upgrade, since
    policies may require an owner.

    Args:
        upgrade: the upgrade.
        node: state of the node before the upgrade.
        settings: settings of the stack.
    """
    stack, target, source = upgrade.spec.stack, upgrade.spec.target, upgrade.spec.source
    owners = [upgrade_job(upgrade, reverting=False, settings=settings), *_operand_daemonsets(stack, target, settings)]
    after = _node_after(upgrade, node)
    forward = [validation_pod(upgrade, reverting=False, node=after, settings=settings)]
    forward += [_pod_of_template(owner, upgrade) for owner in owners]
    revert = []
    if source.driver_key:
        revert.append(validation_pod(upgrade, reverting=True, node=node, settings=settings))
    if source.plugin_key not in {"", target.plugin_key}:
        revert.append(_pod_of_template(_plugin_daemonset(stack, source, plugin_settings(source), settings), upgrade))
    return Rehearsal(forward=forward, revert=revert)


def _node_after(upgrade: NodeUpgrade, node: NodeFacts) -> NodeFacts:
    """The node with the devices that it advertises after the upgrade; one device if the number is unknown."""
    source, target = upgrade.spec.source, upgrade.spec.target
    if (source.mig_strategy, source.shares) == (target.mig_strategy, target.shares):
        return node
    return msgspec.structs.replace(
        node, gpus_allocatable=expected_devices(upgrade, target, node.gpus), gpus_in_parts=()
    )


def _operand_daemonsets(stack: str, state: NodeState, settings: StackSettings) -> list[Manifest]:
    """Without the services of the driver, whose containers differ from that of the driver in their command only."""
    image = ImageFacts(
        key=state.driver_key,
        vendor=state.driver_vendor,
        version=state.driver_version,
        kernel=state.kernel,
        digest=state.driver_image,
    )
    daemonsets, plugin = [driver_daemonset(stack, image, settings)], plugin_settings(state)
    if state.runtime_key:
        daemonsets.append(runtime_daemonset(stack, state.runtime_key, state.runtime_image, plugin, settings))
    if state.plugin_key:
        daemonsets.append(_plugin_daemonset(stack, state, plugin, settings))
    return daemonsets


def _plugin_daemonset(stack: str, state: NodeState, plugin: PluginSettings, settings: StackSettings) -> Manifest:
    return plugin_daemonset(stack, state.plugin_key, state.plugin_image, plugin, settings)


def _pod_of_template(owner: Manifest, upgrade: NodeUpgrade) -> Manifest:
    template, meta = owner["spec"]["template"], owner["metadata"]
    identity = {"name": meta["name"], "namespace": meta["namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template["metadata"],
            **identity,
            "ownerReferences": [owner_reference(NODE_UPGRADES, upgrade.metadata)],
        },
        "spec": {**template["spec"], "nodeName": upgrade.spec.node.name},
    }
