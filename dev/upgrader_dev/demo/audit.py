"""Counting what our user wrote to the API server for the upgrade of a node, from the audit log. Pure.

Counted are NodeUpgrades, Nodes, pods, Jobs and Events (docs/contributing/design: at most 20 for an upgrade); the
request with the jobs is counted beside it, and a dry run stores nothing. A create has its name in the body, which the
audit policy of the embedded cluster keeps for these kinds; so it does for Events, which are counted for their Node.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

WRITES = frozenset({"create", "update", "patch", "delete"})
REFUSED = 400
"""A refused write (a conflict with the kubelet's own, say) wrote nothing."""

COUNTED = frozenset({"nodeupgrades", "nodes", "pods", "jobs", "events"})


class ObjectRef(Struct, frozen=True):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class User(Struct, frozen=True):
    username: str = ""


class Meta(Struct, frozen=True):
    name: str = ""


class Regarding(Struct, frozen=True):
    kind: str = ""
    name: str = ""


class Body(Struct, frozen=True, rename="camel"):
    """What was created, as far as it says for which node."""

    metadata: Meta = Meta()
    involved_object: Regarding = Regarding()


class Status(Struct, frozen=True):
    code: int = 0


class Entry(Struct, frozen=True, rename="camel"):
    """The few fields of an audit.k8s.io/v1 Event that are read."""

    verb: str = ""
    request_uri: str = msgspec.field(name="requestURI", default="")
    user: User = User()
    object_ref: ObjectRef | None = None
    request_received_timestamp: str = ""
    request_object: Body | None = None
    response_status: Status = Status()

    @property
    def wrote(self) -> bool:
        """Whether it changed what the API server stores."""
        dry = "dryRun" in parse_qs(urlsplit(self.request_uri).query)
        return self.verb in WRITES and self.response_status.code < REFUSED and not dry


def parse_entries(text: bytes) -> list[Entry]:
    """The whole lines of an audit log."""
    return [msgspec.json.decode(one, type=Entry) for one in text.split(b"\n")[:-1]]


def writes_per_node(
    log: Iterable[Entry], *, user: str, since: str, namespace: str, upgrades: Mapping[str, str]
) -> dict[str, int]:
    """Writes by node.

    Args:
        log: the audit log.
        user: whose writes count.
        since: RFC 3339; earlier ones do not count.
        namespace: ours; pods and Jobs elsewhere belong to the request.
        upgrades: node by the name of every object that belongs to its upgrade (its NodeUpgrade, pods and Job).
    """
    counts = dict.fromkeys(upgrades.values(), 0)
    for one in log:
        ref = one.object_ref
        if ref is None or one.user.username != user or one.request_received_timestamp < since:
            continue
        if ref.resource not in COUNTED or not one.wrote:
            continue
        if ref.resource in {"pods", "jobs"} and ref.namespace != namespace:
            continue
        node = _node_of(one, ref, upgrades)
        if node in counts:
            counts[node] += 1
    return counts


def _node_of(entry: Entry, ref: ObjectRef, upgrades: Mapping[str, str]) -> str:
    body = entry.request_object or Body()
    if ref.resource == "events":
        return body.involved_object.name if body.involved_object.kind == "Node" else ""
    name = ref.name or body.metadata.name
    return name if ref.resource == "nodes" else upgrades.get(name, "")
