"""Counts the writes of the controller's user to the API server for the upgrade of a node, from the audit log. Pure.

NodeUpgrades, Nodes, pods, Jobs and Events are counted (docs/contributing/design: at most 20 for an upgrade); writes to
the request and the jobs are not, and a dry run stores nothing. The name of a created object is in the body, which the
audit policy of the embedded cluster logs for these kinds; Events are counted for their Node.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

WRITES = frozenset({"create", "update", "patch", "delete"})
REFUSED = 400
"""A rejected write (for example a conflict with a write of the kubelet) stores nothing."""

COUNTED = frozenset({"nodeupgrades", "nodes", "pods", "jobs", "events"})


class ObjectRef(Struct, frozen=True):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class User(Struct, frozen=True):
    username: str = ""


class AuditMetadata(Struct, frozen=True):
    name: str = ""


class Regarding(Struct, frozen=True):
    kind: str = ""
    name: str = ""


class Body(Struct, frozen=True, rename="camel"):
    """The part of a created object that identifies its node."""

    metadata: AuditMetadata = AuditMetadata()
    involved_object: Regarding = Regarding()


class ResponseStatus(Struct, frozen=True):
    code: int = 0


class AuditEvent(Struct, frozen=True, rename="camel"):
    """The fields of an audit.k8s.io/v1 Event that are read."""

    verb: str = ""
    request_uri: str = msgspec.field(name="requestURI", default="")
    user: User = User()
    object_ref: ObjectRef | None = None
    request_received_timestamp: str = ""
    request_object: Body | None = None
    response_status: ResponseStatus = ResponseStatus()

    @property
    def is_write(self) -> bool:
        """Whether it changed a stored object."""
        is_dry_run = "dryRun" in parse_qs(urlsplit(self.request_uri).query)
        return self.verb in WRITES and self.response_status.code < REFUSED and not is_dry_run


def parse_entries(text: bytes) -> list[AuditEvent]:
    """The entries of an audit log, without an incomplete last line."""
    return [msgspec.json.decode(line, type=AuditEvent) for line in text.split(b"\n")[:-1]]


def writes_per_node(
    log: Iterable[AuditEvent], *, user: str, since: str, namespace: str, upgrades: Mapping[str, str]
) -> dict[str, int]:
    """The number of writes by node.

    Args:
        log: the audit log.
        user: the user whose writes are counted.
        since: RFC 3339; earlier writes are not counted.
        namespace: the operator's namespace; pods and Jobs in other namespaces belong to the request.
        upgrades: node by the name of every object of its upgrade (its NodeUpgrade, pods and Job).
    """
    counts = dict.fromkeys(upgrades.values(), 0)
    for entry in log:
        ref = entry.object_ref
        if ref is None or entry.user.username != user or entry.request_received_timestamp < since:
            continue
        if ref.resource not in COUNTED or not entry.is_write:
            continue
        if ref.resource in {"pods", "jobs"} and ref.namespace != namespace:
            continue
        node = _find_node(entry, ref, upgrades)
        if node in counts:
            counts[node] += 1
    return counts


def _find_node(entry: AuditEvent, ref: ObjectRef, upgrades: Mapping[str, str]) -> str:
    body = entry.request_object or Body()
    if ref.resource == "events":
        return body.involved_object.name if body.involved_object.kind == "Node" else ""
    name = ref.name or body.metadata.name
    return name if ref.resource == "nodes" else upgrades.get(name, "")
