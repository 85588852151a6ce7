"""The objects by which Prometheus finds a stack's exporters: kept while it has some, and gone before they go.

ServiceMonitor is a kind of Prometheus' operator: it is asked for at each look, so one that is installed later counts.
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


async def ensure(context: Context, stack: str) -> str:
    """Bring them to what they should be; what keeps one from it, where the API server refuses it.

    Raises:
        ClusterError: the API server did not answer; the step is made again.
    """
    bodies = {SERVICES.kind: manifests.exporter_service, SERVICE_MONITORS.kind: manifests.service_monitor}
    for kind in await _kinds(context):
        try:
            await _ensure(context, kind, stack, bodies[kind.kind](stack, context.stack))
        except UpgraderError as error:
            if not error.refused:
                raise
            return f"its {kind.kind} was refused: {error.brief}"
    return ""


async def leave(context: Context, stack: str = "") -> None:
    """Remove those of a stack, or of all stacks; the Service goes last, as it came first.

    Raises:
        ClusterError: the API server refused or did not answer; the step is made again.
    """
    for kind in reversed(await _kinds(context)):
        for one in await _present(context, kind, stack):
            if one.metadata.deletion_timestamp is None:
                context.leadership.check()
                log.info("operand removed", kind=kind.kind, name=one.metadata.name)
                await context.cluster.delete(kind, one.metadata)


async def _ensure(context: Context, kind: ResourceKind[Unread], stack: str, body: Manifest) -> None:
    present = await _present(context, kind, stack)
    wanted = body["metadata"]["annotations"][names.ANNOTATION_MANIFEST]
    if all(one.metadata.annotations.get(names.ANNOTATION_MANIFEST) != wanted for one in present):
        context.leadership.check()
        log.info("operand applied", kind=kind.kind, name=body["metadata"]["name"])
        await context.cluster.apply(kind, body)


async def _kinds(context: Context) -> list[ResourceKind[Unread]]:
    served = (await context.cluster.served()).get((SERVICE_MONITORS.group, SERVICE_MONITORS.plural), ())
    return [SERVICES, *([SERVICE_MONITORS] if SERVICE_MONITORS.version in served else [])]


async def _present(context: Context, kind: ResourceKind[Unread], stack: str) -> Sequence[Unread]:
    whose = f"{names.LABEL_STACK}={stack}" if stack else names.LABEL_STACK
    selector = f"{names.LABEL_COMPONENT}={COMPONENT_OF[Operand.MONITORING]},{whose}"
    try:
        return await context.cluster.list(kind, context.stack.namespace, labels=selector)
    except ConfigurationError:
        return ()  # the kind was taken away within the minute for which it is remembered that it is served
