"""Non-disruptive operands of a stack: kept as its spec states, without upgrades; an image is pinned when it is named.

The digest stays the same when the tag moves: only another name in the stack is resolved again.
"""

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import DaemonSet
from upgrader.api.resources import DAEMONSETS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.api.v1alpha1.operand_specs import NondisruptiveOperandSpec
from upgrader.core.driver_image.image_names import with_registry
from upgrader.core.errors import RegistryError
from upgrader.core.model.operands import COMPONENTS, NONDISRUPTIVE, Operand
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.operands import gpu_features, scraping
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests
from upgrader.stack.operands.nondisruptive_operands import NondisruptiveOperand

MANAGED = "Managed"
log = structlog.get_logger()


def managed_operands(stack: GpuStack) -> dict[Operand, NondisruptiveOperandSpec]:
    """The managed non-disruptive operands, in their order."""
    specs = {Operand.FEATURE_DISCOVERY: stack.spec.feature_discovery, Operand.MONITORING: stack.spec.monitoring}
    return {operand: spec for operand, spec in specs.items() if spec.management == MANAGED}


async def ensure_operands(context: Context, read: StackReading) -> dict[Operand, str]:
    """Apply their DaemonSets; returns errors that need a user, by operand.

    While another stack selects nodes of this stack nothing is applied: both stacks' DaemonSets would run there.

    Raises:
        ClusterError: the API server refused or did not answer; the step is repeated.
    """
    if any(node.claimants for node in read.snapshot.nodes):
        return {}
    faults: dict[Operand, str] = {}
    wanted = managed_operands(read.stack)
    keyed = {Operand.RUNTIME: read.target.runtime_image, Operand.DEVICE_PLUGIN: read.target.plugin_image}
    stack_operands = frozenset([*wanted, *(keyed_operand for keyed_operand, image in keyed.items() if image)])
    for operand, spec in wanted.items():
        fault = await _ensure_operand(context, read, operand, spec, stack_operands)
        if fault:
            faults[operand] = fault
    return faults


def is_unwanted(daemonset: DaemonSet, read: StackReading) -> bool:
    """Whether a DaemonSet is a non-disruptive operand that its stack no longer manages."""
    operand = COMPONENTS.get(daemonset.metadata.labels.get(names.LABEL_COMPONENT, ""))
    return operand in NONDISRUPTIVE and operand not in managed_operands(read.stack)


async def _ensure_operand(
    context: Context,
    read: StackReading,
    operand: Operand,
    spec: NondisruptiveOperandSpec,
    stack_operands: frozenset[Operand],
) -> str:
    stack, plugin = read.stack, read.target.plugin
    name = manifests.nondisruptive_name(stack.metadata.name, operand)
    present = await context.cluster.get(DAEMONSETS, name, context.stack.namespace)
    named = with_registry(spec.image or "", context.stack.registry)
    try:
        image = _pinned_image(present, named) or await context.registry.digest(named)
    except RegistryError as error:
        return f"the registry did not respond, trying again: {error.brief}"
    if image is None:
        return f"{named} is not in its registry; push it, or correct the image of {operand.value}"
    rendered = NondisruptiveOperand(
        operand=operand,
        named=named,
        image=image,
        max_unavailable=spec.max_unavailable,
        plugin=plugin,
        before=manifests.earlier_operands(operand, plugin, stack_operands),
    )
    body = manifests.nondisruptive_daemonset(stack, rendered, context.stack)
    wanted = body["metadata"]["annotations"][names.ANNOTATION_MANIFEST]
    if present is None or present.metadata.annotations.get(names.ANNOTATION_MANIFEST) != wanted:
        context.leadership.check()
        log.info("non-disruptive operand applied", name=name, image=image)
        await context.cluster.apply(DAEMONSETS, body)
    match operand:
        case Operand.MONITORING:
            return await scraping.ensure_scraping(context, stack.metadata.name)
        case Operand.FEATURE_DISCOVERY:
            return await gpu_features.label_nodes(context, read)
        case _:
            return ""  # its DaemonSet is all


def _pinned_image(present: DaemonSet | None, named: str) -> str | None:
    """The digest to which this name was resolved before."""
    if present is None or present.metadata.annotations.get(names.ANNOTATION_READABLE) != named:
        return None
    containers = present.spec.template.spec.get("containers") or [{}]
    image = containers[0].get("image")
    return str(image) if image else None
