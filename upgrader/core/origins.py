"""Where the nodes of a rollout come from: for each revision that they carry now, what changes on the way."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from upgrader.core.fleet import NodeFacts, Target

NOT_MANAGED = "not managed"


class Change(Struct, frozen=True, kw_only=True):
    """One thing that a visit swaps; `before` is empty where nobody knows it."""

    what: str
    before: str
    after: str


class Origin(Struct, frozen=True, kw_only=True):
    """Nodes that carry one revision now; it is empty where they carry none, and so are changes that nobody knows."""

    revision: str
    nodes: int
    changes: tuple[Change, ...] = ()


def changes(before: Target, after: Target) -> tuple[Change, ...]:
    """What differs between two revisions, as a person says it."""
    pairs = (
        ("driver", f"{before.driver_vendor} {before.driver_version}", f"{after.driver_vendor} {after.driver_version}"),
        ("device plugin", before.plugin_image, after.plugin_image),
        ("resource", before.resource_name, after.resource_name),
        ("kubelet", before.kubelet_version or NOT_MANAGED, after.kubelet_version or NOT_MANAGED),
    )
    return tuple(Change(what=what, before=old, after=new) for what, old, new in pairs if old != new)


def origins(nodes: Iterable[NodeFacts], known: Mapping[str, Target], target: Target) -> tuple[Origin, ...]:
    """The revisions of these nodes, most nodes first. `known`: what each revision says, where it is still kept."""
    count: dict[str, int] = {}
    for node in nodes:
        count[node.revision] = count.get(node.revision, 0) + 1
    return tuple(
        Origin(
            revision=revision,
            nodes=number,
            changes=changes(known[revision], target) if revision in known else (),
        )
        for revision, number in sorted(count.items(), key=lambda item: (-item[1], item[0]))
    )
