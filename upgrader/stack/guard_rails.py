"""Manifests that reserve a pool for its jobs: PriorityClasses, quotas, a tuned profile. Pure.

A user applies them (`upgrader guard-rails`): the controller has no rights for these kinds and does not delete them.
"""

from upgrader.api import names
from upgrader.api.v1alpha1 import GpuStack
from upgrader.api.v1alpha1.guard_rails import GpuQuota, PriorityClassSpec, TunedSpec
from upgrader.core.naming import object_name
from upgrader.stack.parts import Manifest

_VALUE, _EFFECT = "present", "NoSchedule"


def guard_rails(stack: GpuStack) -> list[Manifest]:
    """The manifests of the guardRails of a stack, in the order in which they can be applied."""
    rails, name = stack.spec.guard_rails, stack.metadata.name
    manifests = [_priority_class(spec, name) for spec in rails.priority_classes]
    manifests += [_resource_quota(quota, stack.spec.device_plugin.resource_name, name) for quota in rails.quotas]
    if rails.tuned is not None:
        manifests.append(_tuned_profile(rails.tuned, stack))
    return manifests


def taint_command(stack: GpuStack) -> str:
    """The command that taints the pool; empty if its guardRails have no taint.

    A user runs it: the controller never changes taints that it did not set (law 3).
    """
    if not stack.spec.guard_rails.taint:
        return ""
    pool = ",".join(f"{key}={value}" for key, value in sorted(stack.spec.node_selector.items()))
    return f"kubectl taint nodes -l {pool} {_taint_key(stack)}={_VALUE}:{_EFFECT} --overwrite"


def kubelet_setting(stack: GpuStack) -> str:
    """The taint as a line of KubeletConfiguration, for nodes that join later."""
    if not stack.spec.guard_rails.taint:
        return ""
    return f"registerWithTaints: [{{key: {_taint_key(stack)}, value: {_VALUE}, effect: {_EFFECT}}}]"


def _taint_key(stack: GpuStack) -> str:
    # the name of the resource: the admission plugin ExtendedResourceToleration tolerates it for pods that request it
    return stack.spec.device_plugin.resource_name


def _priority_class(spec: PriorityClassSpec, stack: str) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": spec.name, "labels": {names.LABEL_STACK: stack}},
        "value": spec.value,
        "preemptionPolicy": spec.preemption_policy,
        "globalDefault": False,
        "description": spec.description,
    }


def _resource_quota(quota: GpuQuota, resource: str, stack: str) -> Manifest:
    """A quota of requests: an extended resource has no other quota, since its limits equal its requests."""
    scope = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": quota.priority_classes}]}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": object_name(f"gpus-{stack}", stack, quota.namespace, *quota.priority_classes),
            "namespace": quota.namespace,
            "labels": {names.LABEL_STACK: stack},
        },
        "spec": {
            "hard": {f"requests.{resource}": str(quota.gpus)},
            **({"scopeSelector": scope} if quota.priority_classes else {}),
        },
    }


def _tuned_profile(tuned: TunedSpec, stack: GpuStack) -> Manifest:
    """A profile for the node tuning operator, which runs `tuned` on the nodes; without the operator the kind does
    not exist.
    """
    name = object_name(f"gpus-{stack.metadata.name}", stack.metadata.name)
    lines = [f"[main]\nsummary=GPU nodes of stack {stack.metadata.name}\ninclude={tuned.include}"]
    for section, settings in (("sysctl", tuned.sysctl), ("bootloader", tuned.bootloader)):
        if settings:
            lines.append(f"[{section}]\n" + "\n".join(f"{key}={value}" for key, value in sorted(settings.items())))
    match: list[Manifest] = []
    for key, value in sorted(stack.spec.node_selector.items(), reverse=True):
        match = [
            {"label": key, "value": value, **({"match": match} if match else {})}
        ]  # nested matches: all labels must match
    return {
        "apiVersion": "tuned.openshift.io/v1",
        "kind": "Tuned",
        "metadata": {
            "name": name,
            "namespace": tuned.namespace,
            "labels": {names.LABEL_STACK: stack.metadata.name},
        },
        "spec": {
            "profile": [{"name": name, "data": "\n".join(lines) + "\n"}],
            "recommend": [{"profile": name, "priority": tuned.priority, "match": match}],
        },
    }
