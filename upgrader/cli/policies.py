"""Our optional admission policies: whether they are installed, and taking them away with everything else."""

from collections.abc import Callable

from upgrader.api import names
from upgrader.api.resources import POLICIES, POLICY_BINDINGS
from upgrader.core.errors import REFUSED
from upgrader.reconcile.context import Context

FILES = {
    names.STEERING_POLICY: "deploy/admission-steering.yaml",
    names.MOUNTS_POLICY: "deploy/admission-mounts.yaml",
}
"""Our policies, which have their bindings' names, and the file that each comes from."""


async def installed(context: Context) -> list[str]:
    """Our admission policies whose bindings are installed."""
    return [name for name in FILES if await context.cluster.get(POLICY_BINDINGS, name) is not None]


async def remove(context: Context, tell: Callable[[str], None]) -> None:
    """Delete them, each binding before its policy; where that is not allowed it is told how somebody else can."""
    for name, file in FILES.items():
        try:
            gone = await _remove(context, name)
        except REFUSED as error:
            if not error.refused:
                raise
            tell(
                f"admission policy {name}: {error.brief}; if it is installed, remove it with: kubectl delete -f {file}"
            )
            continue
        if gone:
            tell(f"admission policy {name} is deleted")


async def _remove(context: Context, name: str) -> bool:
    """Whether anything of it was there. What has our binding's name and binds a policy of others is left."""
    binding = await context.cluster.get(POLICY_BINDINGS, name)
    ours = binding is not None and binding.spec.policy_name == name
    if binding is not None and ours:
        await context.cluster.delete(POLICY_BINDINGS, binding.metadata)
    policy = await context.cluster.get(POLICIES, name)
    if policy is not None:
        await context.cluster.delete(POLICIES, policy.metadata)
    return ours or policy is not None
