"""Manifests that keep a pool for those it is meant for: priorities, quotas, a tuned profile. Pure.

They are a person's to apply (`upgrader guard-rails`): the controller has no right to any of these kinds, and takes none
of them back.
"""

from upgrader.api import names
from upgrader.api.v1alpha1 import GpuStack
from upgrader.api.v1alpha1.guard_rails import GpuQuota, PriorityClassSpec, TunedSpec
from upgrader.core.naming import object_name
from upgrader.stack.parts import Manifest

_VALUE, _EFFECT = "present", "NoSchedule"


def guard_rails(stack: GpuStack) -> list[Manifest]:
    """Everything that the stack's guardRails name, in the order in which it can be applied."""
    rails, name = stack.spec.guard_rails, stack.metadata.name
    found = [_priority(one, name) for one in rails.priority_classes]
    found += [_quota(one, stack.spec.device_plugin.resource_name, name) for one in rails.quotas]
    if rails.tuned is not None:
        found.append(_tuned(rails.tuned, stack))
    return found


def taint_command(stack: GpuStack) -> str:
    """The command that taints the pool as its guardRails say; empty where they do not.

    Only a person may: a taint of a node that nobody of ours made is never touched by us (law 3).
    """
    if not stack.spec.guard_rails.taint:
        return ""
    pool = ",".join(f"{key}={value}" for key, value in sorted(stack.spec.node_selector.items()))
    return f"kubectl taint nodes -l {pool} {_key(stack)}={_VALUE}:{_EFFECT} --overwrite"


def kubelet_setting(stack: GpuStack) -> str:
    """The same taint as a line of KubeletConfiguration: the command reaches only the nodes that are there already."""
    if not stack.spec.guard_rails.taint:
        return ""
    return f"registerWithTaints: [{{key: {_key(stack)}, value: {_VALUE}, effect: {_EFFECT}}}]"


def _key(stack: GpuStack) -> str:
    # the resource's own name: the admission plugin ExtendedResourceToleration tolerates this key for pods that ask
    return stack.spec.device_plugin.resource_name


def _priority(one: PriorityClassSpec, stack: str) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": one.name, "labels": {names.LABEL_STACK: stack}},
        "value": one.value,
        "preemptionPolicy": one.preemption_policy,
        "globalDefault": False,
        "description": one.description,
    }


def _quota(one: GpuQuota, resource: str, stack: str) -> Manifest:
    """Of an extended resource only requests can be limited; its limits are equal to them."""
    scope = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": one.priority_classes}]}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": object_name(f"gpus-{stack}", stack, one.namespace, *one.priority_classes),
            "namespace": one.namespace,
            "labels": {names.LABEL_STACK: stack},
        },
        "spec": {
            "hard": {f"requests.{resource}": str(one.gpus)},
            **({"scopeSelector": scope} if one.priority_classes else {}),
        },
    }


def _tuned(one: TunedSpec, stack: GpuStack) -> Manifest:
    """For the node tuning operator, which runs `tuned` on the nodes; without it the kind is not there."""
    name = object_name(f"gpus-{stack.metadata.name}", stack.metadata.name)
    lines = [f"[main]\nsummary=GPU nodes of stack {stack.metadata.name}\ninclude={one.include}"]
    for section, settings in (("sysctl", one.sysctl), ("bootloader", one.bootloader)):
        if settings:
            lines.append(f"[{section}]\n" + "\n".join(f"{key}={value}" for key, value in sorted(settings.items())))
    match: list[Manifest] = []
    for key, value in sorted(stack.spec.node_selector.items(), reverse=True):
        match = [{"label": key, "value": value, **({"match": match} if match else {})}]  # nested: all of them
    return {
        "apiVersion": "tuned.openshift.io/v1",
        "kind": "Tuned",
        "metadata": {
            "name": name,
            "namespace": one.namespace,
            "labels": {names.LABEL_STACK: stack.metadata.name},
        },
        "spec": {
            "profile": [{"name": name, "data": "\n".join(lines) + "\n"}],
            "recommend": [{"profile": name, "priority": one.priority, "match": match}],
        },
    }
