"""Kubernetes Events, for users of `kubectl describe`. The loss of an Event has no effect, so it is not an error."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import structlog

from upgrader.api.kubernetes import ObjectMeta
from upgrader.core.errors import UpgraderError
from upgrader.core.timing import format_time

_LONGEST_MESSAGE = 1024  # the API server rejects longer ones
_COMPONENT = "gpu-upgrader"

log = structlog.get_logger(__name__)


def event_manifest(
    regarding: ObjectMeta, kind: str, api_version: str, *, reason: str, message: str, warning: bool, now: datetime
) -> dict[str, Any]:
    """A core/v1 Event. The Event of a cluster-scoped object is in `default`, as kubectl expects."""
    namespace = regarding.namespace or "default"
    when = format_time(now.replace(microsecond=0))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{regarding.name[:230]}.{int(now.timestamp() * 1e6):x}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": api_version,
            "kind": kind,
            "name": regarding.name,
            "namespace": regarding.namespace,
            "uid": regarding.uid,
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
    }


async def post_event(event: Mapping[str, Any], send: Callable[[Mapping[str, Any]], Awaitable[object]]) -> None:
    """Send an Event; a failure is logged."""
    try:
        await send(event)
    except UpgraderError as error:
        about = event["involvedObject"]["name"]
        log.warning("Event not recorded", reason=event["reason"], about=about, error=str(error))
