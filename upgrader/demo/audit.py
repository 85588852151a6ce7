"""Counting what our user wrote to the API server for the visit of a node, from the audit log. Pure.

Counted are NodeUpgrades, Nodes, pods, Jobs and Events (docs/design: at most 20 for a visit); the conversation with the
jobs is counted beside it. An audit line of a create has no object name where the name stands in the body only: such
writes are shared out evenly over the visited nodes, so Events on jobs and plans make the figure rather too high.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

import msgspec
from msgspec import Struct

WRITES = frozenset({"create", "update", "patch", "delete"})
COUNTED = frozenset({"nodeupgrades", "nodes", "pods", "jobs", "events"})


class ObjectRef(Struct, frozen=True):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class User(Struct, frozen=True):
    username: str = ""


class Entry(Struct, frozen=True, rename="camel"):
    """The few fields of an audit.k8s.io/v1 Event that are read."""

    verb: str = ""
    user: User = User()
    object_ref: ObjectRef | None = None
    request_received_timestamp: str = ""
    response_status: dict[str, Any] = {}


def entries(text: bytes) -> list[Entry]:
    """The whole lines of an audit log."""
    return [msgspec.json.decode(one, type=Entry) for one in text.split(b"\n")[:-1]]


def writes_per_node(
    log: Iterable[Entry], *, user: str, since: str, namespace: str, visits: Mapping[str, str]
) -> dict[str, int]:
    """Writes by node.

    Args:
        log: the audit log.
        user: whose writes count.
        since: RFC 3339; earlier ones do not count.
        namespace: ours; pods and Jobs elsewhere belong to the conversation.
        visits: node by the name of every object that belongs to its visit (its NodeUpgrade, pods and Job).
    """
    named: dict[str, int] = dict.fromkeys(visits.values(), 0)
    unnamed = 0
    for one in log:
        ref = one.object_ref
        if ref is None or one.user.username != user or one.request_received_timestamp < since:
            continue
        if one.verb not in WRITES or ref.resource not in COUNTED:
            continue
        if ref.resource in {"pods", "jobs"} and ref.namespace != namespace:
            continue
        node = ref.name if ref.resource == "nodes" else visits.get(ref.name, "")
        if node in named:
            named[node] += 1
        elif not ref.name:
            unnamed += 1
    share = ceil(unnamed / len(named)) if named else 0
    return {node: count + share for node, count in named.items()}
