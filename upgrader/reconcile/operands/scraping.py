"""Objects by which Prometheus finds a stack's exporters: kept while it has exporters, removed before them.

ServiceMonitor is a kind of Prometheus Operator: each step checks whether it is served, so it may be installed later.
"""

from collections.abc import Sequence

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Unread
from upgrader.api.resources import SERVICE_MONITORS, SERVICES, ResourceKind
from upgrader.core.errors import ConfigurationError, UpgraderError
from upgrader.core.model.operands import COMPONENT_OF, Operand
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests
from upgrader.stack.parts import Manifest

log = structlog.get_logger()


async def ensure_scraping(context: Context, stack: str) -> str:
    """Apply the objects; returns the refusal of the API server, else empty.

    Raises:
        ClusterError: the API server did not answer; the step is repeated.
    """
    bodies = {SERVICES.kind: manifests.exporter_service, SERVICE_MONITORS.kind: manifests.service_monitor}
    for kind in await _served_kinds(context):
        try:
            await _ensure_object(context, kind, stack, bodies[kind.kind](stack, context.stack))
        except UpgraderError as error:
            if not error.refused:
                raise
            return f"its {kind.kind} was refused: {error.brief}"
    return ""


async def remove_scraping(context: Context, stack: str = "") -> None:
    """Remove the objects of a stack, or of all stacks; the Service last, as it was created first.

    Raises:
        ClusterError: the API server refused or did not answer; the step is repeated.
    """
    for kind in reversed(await _served_kinds(context)):
        for item in await _list_objects(context, kind, stack):
            if item.metadata.deletion_timestamp is None:
                context.leadership.check()
                log.info("operand removed", kind=kind.kind, name=item.metadata.name)
                await context.cluster.delete(kind, item.metadata)


async def _ensure_object(context: Context, kind: ResourceKind[Unread], stack: str, body: Manifest) -> None:
    present = await _list_objects(context, kind, stack)
    wanted = body["metadata"]["annotations"][names.ANNOTATION_MANIFEST]
    if all(item.metadata.annotations.get(names.ANNOTATION_MANIFEST) != wanted for item in present):
        context.leadership.check()
        log.info("operand applied", kind=kind.kind, name=body["metadata"]["name"])
        await context.cluster.apply(kind, body)


async def _served_kinds(context: Context) -> list[ResourceKind[Unread]]:
    served = (await context.cluster.served()).get((SERVICE_MONITORS.group, SERVICE_MONITORS.plural), ())
    return [SERVICES, *([SERVICE_MONITORS] if SERVICE_MONITORS.version in served else [])]


async def _list_objects(context: Context, kind: ResourceKind[Unread], stack: str) -> Sequence[Unread]:
    whose = f"{names.LABEL_STACK}={stack}" if stack else names.LABEL_STACK
    selector = f"{names.LABEL_COMPONENT}={COMPONENT_OF[Operand.MONITORING]},{whose}"
    try:
        return await context.cluster.list(kind, context.stack.namespace, labels=selector)
    except ConfigurationError:
        return ()  # the kind was removed within the minute for which discovery is cached
