"""The optional admission policies: whether they are installed, and their removal by `upgrader uninstall`."""

from collections.abc import Callable

from msgspec import Struct

from upgrader.api import names
from upgrader.api.kubernetes import AdmissionPolicyBinding, Unread
from upgrader.api.resources import (
    POLICIES,
    POLICY_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    ResourceKind,
)
from upgrader.core.errors import REFUSED
from upgrader.reconcile.runtime.context import Context


class Policy(Struct, frozen=True):
    """A policy of deploy/; its binding has the same name."""

    name: str
    file: str
    kind: ResourceKind[Unread]
    binding: ResourceKind[AdmissionPolicyBinding]


SHIPPED = (
    Policy(names.STEERING_POLICY, "deploy/admission-steering.yaml", POLICIES, POLICY_BINDINGS),
    Policy(names.MOUNTS_POLICY, "deploy/admission-mounts.yaml", POLICIES, POLICY_BINDINGS),
    Policy(names.REQUESTS_POLICY, "deploy/admission-requests.yaml", VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS),
)


async def installed_policies(context: Context) -> list[str]:
    """The names of the policies whose bindings are installed."""
    return [policy.name for policy in SHIPPED if await context.cluster.get(policy.binding, policy.name) is not None]


async def remove_policies(context: Context, tell: Callable[[str], None]) -> None:
    """Delete the policies, each binding before its policy; if that is forbidden, print the kubectl command."""
    for policy in SHIPPED:
        try:
            gone = await _remove_policy(context, policy)
        except REFUSED as error:
            if not error.refused:
                raise
            by_hand = f"if it is installed, delete it with: kubectl delete -f {policy.file}"
            tell(f"admission policy {policy.name}: {error.brief}; {by_hand}")
            continue
        if gone:
            tell(f"admission policy {policy.name} is deleted")


async def _remove_policy(context: Context, policy: Policy) -> bool:
    """Delete one policy; False if it was not installed. A binding of the same name to another policy is not
    deleted.
    """
    binding = await context.cluster.get(policy.binding, policy.name)
    bound = binding is not None and binding.spec.policy_name == policy.name
    if binding is not None and bound:
        await context.cluster.delete(policy.binding, binding.metadata)
    existing = await context.cluster.get(policy.kind, policy.name)
    if existing is not None:
        await context.cluster.delete(policy.kind, existing.metadata)
    return bound or existing is not None
