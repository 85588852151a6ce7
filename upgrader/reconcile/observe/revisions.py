"""Revisions of a stack, kept as ControllerRevisions: the spec, and the digests of its images at that time.

A revision is written once and never changed, so a rollback restores identical images.
"""

from typing import Any

import msgspec

from upgrader.api import names
from upgrader.api.explicit import explicit_json
from upgrader.api.kubernetes import ControllerRevision
from upgrader.api.resources import CONTROLLER_REVISIONS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.driver_image.image_names import with_registry
from upgrader.core.errors import ConflictError
from upgrader.core.model.fleet import Target
from upgrader.core.model.revisions import with_revision
from upgrader.core.model.validation import AllReduce, Diagnostics
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context


def revision_name(stack: str, revision: str) -> str:
    """Name of the ControllerRevision."""
    return f"{stack}-{revision}"


async def read_target(context: Context, stack: str, revision: str) -> Target | None:
    """The target of a revision; None if the revision does not exist."""
    revision_object = await context.cluster.get(
        CONTROLLER_REVISIONS, revision_name(stack, revision), context.stack.namespace
    )
    return None if revision_object is None else msgspec.convert(revision_object.data["target"], Target)


async def list_revisions(context: Context, stack: str) -> list[ControllerRevision]:
    """All revisions of a stack, oldest first.

    Revisions of DaemonSets have the stack's label too, but they have an owner.
    """
    listed = await context.cluster.list(
        CONTROLLER_REVISIONS, context.stack.namespace, labels=f"{names.LABEL_STACK}={stack}"
    )
    return sorted(
        (revision for revision in listed if not revision.metadata.owner_references),
        key=lambda revision: revision.revision,
    )


async def former_resources(context: Context, stack: str, present: str) -> tuple[str, ...]:
    """Extended resources of GPUs in other revisions of a stack, which some nodes and pods may still use.

    `present`: the resource of the present revision, which is excluded.
    """
    kept = [msgspec.convert(revision.data["target"], Target) for revision in await list_revisions(context, stack)]
    return tuple(sorted({target.resource_name for target in kept} - {present}))


async def ensure_revision(context: Context, stack: GpuStack) -> Target | str:
    """The present spec as a revision with pinned images; a sentence instead if an image does not exist.

    Raises:
        RegistryError: a registry did not answer.
    """
    target = with_revision(cluster_snapshot.target_of(stack.spec, stack.metadata.name))
    known = await read_target(context, stack.metadata.name, target.revision)
    if known is not None:
        return known
    pinned = await pin_images(context, target)
    if isinstance(pinned, str):
        return pinned
    number = 1 + max((revision.revision for revision in await list_revisions(context, stack.metadata.name)), default=0)
    try:
        await context.cluster.create(CONTROLLER_REVISIONS, _revision_manifest(context, stack, pinned, number))
    except ConflictError:
        written = await read_target(context, stack.metadata.name, target.revision)
        return written if written is not None else "the revision is being written by another controller"
    return pinned


async def pin_images(context: Context, target: Target) -> Target | str:
    """The target with the present digests of its images; a sentence instead if an image is not in its registry.

    Raises:
        RegistryError: a registry did not answer.
    """
    pinned: dict[str, str] = {}
    for image, fact, field in (
        (target.runtime_image, "runtime_digest", "runtime.image"),
        (target.plugin_image, "plugin_digest", "devicePlugin.image"),
        (target.kubelet_artifact, "kubelet_digest", "kubelet.artifact"),
        (target.workload_image, "workload_digest", "validation.workloadImage"),
        (_image_of(target.all_reduce), "all_reduce_digest", "validation.allReduce.image"),
        (_image_of(target.diagnostics), "diagnostics_digest", "validation.diagnostics.image"),
    ):
        if not image:
            continue
        reference = with_registry(image, context.stack.registry)
        digest = await context.registry.digest(reference)
        if digest is None:
            return f"{reference} is not in its registry; push it, or correct spec.{field}"
        pinned[fact] = digest
    return msgspec.structs.replace(target, **pinned)


def _image_of(program: AllReduce | Diagnostics | None) -> str:
    return program.image if program is not None else ""


def _revision_manifest(context: Context, stack: GpuStack, target: Target, number: int) -> dict[str, Any]:
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": revision_name(stack.metadata.name, target.revision),
            "namespace": context.stack.namespace,
            "labels": {names.LABEL_STACK: stack.metadata.name},
        },
        "revision": number,
        "data": {"target": msgspec.to_builtins(target), "spec": explicit_json(stack.spec)},
    }
