"""Revisions of a stack, kept as ControllerRevisions: what was asked, and the digests that its images had then.

A revision is written once and never changed, so a rollback brings back the very same bytes.
"""

from typing import Any

import msgspec

from upgrader.api import names
from upgrader.api.explicit import explicit
from upgrader.api.kubernetes import ControllerRevision
from upgrader.api.resources import CONTROLLER_REVISIONS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.driver_image.image_names import located
from upgrader.core.errors import ConflictError
from upgrader.core.model.fleet import Target
from upgrader.core.model.revisions import with_revision
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context


def revision_name(stack: str, revision: str) -> str:
    """Name of the ControllerRevision."""
    return f"{stack}-{revision}"


async def read_target(context: Context, stack: str, revision: str) -> Target | None:
    """The target that a revision names; None while it is not written (or was removed)."""
    found = await context.cluster.get(CONTROLLER_REVISIONS, revision_name(stack, revision), context.stack.namespace)
    return None if found is None else msgspec.convert(found.data["target"], Target)


async def revisions(context: Context, stack: str) -> list[ControllerRevision]:
    """All revisions of a stack, oldest first.

    A DaemonSet keeps revisions of its own under its pods' labels, among them the stack's name: those have an owner.
    """
    found = await context.cluster.list(
        CONTROLLER_REVISIONS, context.stack.namespace, labels=f"{names.LABEL_STACK}={stack}"
    )
    return sorted((one for one in found if not one.metadata.owner_references), key=lambda one: one.revision)


async def former_resources(context: Context, stack: str, present: str) -> tuple[str, ...]:
    """Extended resources that GPUs are offered by in other revisions of a stack: some nodes and pods may be of those.

    `present`: the one that is not among them.
    """
    kept = [msgspec.convert(one.data["target"], Target) for one in await revisions(context, stack)]
    return tuple(sorted({one.resource_name for one in kept} - {present}))


async def ensure_revision(context: Context, stack: GpuStack) -> Target | str:
    """The present spec as a revision with pinned images; a sentence instead where an image is not there.

    Raises:
        RegistryError: a registry did not answer, so nothing is known.
    """
    target = with_revision(cluster_snapshot.target_of(stack.spec, stack.metadata.name))
    known = await read_target(context, stack.metadata.name, target.revision)
    if known is not None:
        return known
    pinned = await pin(context, target)
    if isinstance(pinned, str):
        return pinned
    number = 1 + max((one.revision for one in await revisions(context, stack.metadata.name)), default=0)
    try:
        await context.cluster.create(CONTROLLER_REVISIONS, _manifest(context, stack, pinned, number))
    except ConflictError:
        written = await read_target(context, stack.metadata.name, target.revision)
        return written if written is not None else "the revision is being written by somebody else"
    return pinned


async def pin(context: Context, target: Target) -> Target | str:
    """The target with the digests that its images have now; a sentence instead where one is not in its registry.

    Raises:
        RegistryError: a registry did not answer.
    """
    pinned: dict[str, str] = {}
    for image, fact, field in (
        (target.runtime_image, "runtime_digest", "runtime.image"),
        (target.plugin_image, "plugin_digest", "devicePlugin.image"),
        (target.kubelet_artifact, "kubelet_digest", "kubelet.artifact"),
        (target.workload_image, "workload_digest", "validation.workloadImage"),
    ):
        if not image:
            continue
        reference = located(image, context.stack.registry)
        found = await context.registry.digest(reference)
        if found is None:
            return f"{reference} is not in its registry; push it, or correct spec.{field}"
        pinned[fact] = found
    return msgspec.structs.replace(target, **pinned)


def _manifest(context: Context, stack: GpuStack, target: Target, number: int) -> dict[str, Any]:
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": revision_name(stack.metadata.name, target.revision),
            "namespace": context.stack.namespace,
            "labels": {names.LABEL_STACK: stack.metadata.name},
        },
        "revision": number,
        "data": {"target": msgspec.to_builtins(target), "spec": explicit(stack.spec)},
    }
