"""Upgrade groups: nodes that must be upgraded together, because a gang runs on several of them.

A stop of a gang idles all its nodes, so that an upgrade of them all in one stop costs its job nothing more, and the
gang never runs on mixed drivers. Only nodes that are to be upgraded belong to a group: if a gang also runs on nodes
that need no upgrade, it is stopped whole and its GPUs there count, but those nodes are not upgraded, and they do not
join the other gangs on them. Pods that their owner replaces one by one (replicated) do not join nodes either: each is
evicted alone.
"""

import hashlib
from collections.abc import Iterable

from msgspec import Struct

from upgrader.core.model.fleet import Gang


class UpgradeGroup(Struct, frozen=True, kw_only=True, gc=False):
    """Nodes upgraded together, in order of their names; gangs by name."""

    name: str
    nodes: tuple[str, ...]
    gangs: tuple[str, ...] = ()  # requested to checkpoint and stopped together
    evicted: tuple[str, ...] = ()  # replicated, with pods on these nodes


def group_name(nodes: Iterable[str]) -> str:
    """`c-` and 10 hex digits over the nodes' names, the same in any order; fits a label value and a taint."""
    return "c-" + hashlib.sha256("\n".join(sorted(nodes)).encode()).hexdigest()[:10]


def build_groups(upgrading: Iterable[str], gangs: Iterable[Gang]) -> tuple[UpgradeGroup, ...]:
    """The nodes to be upgraded, divided into groups, ordered by their first node."""
    parents = {node: node for node in sorted(upgrading)}

    def root(node: str) -> str:
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    here = [(gang, sorted(gang.nodes & parents.keys())) for gang in gangs]
    here = [(gang, nodes) for gang, nodes in here if nodes]
    for gang, nodes in here:
        if not gang.replicated:
            for node in nodes[1:]:
                parents[root(node)] = root(nodes[0])

    members: dict[str, list[str]] = {}
    for node in parents:
        members.setdefault(root(node), []).append(node)
    asked: dict[str, set[str]] = {at: set() for at in members}
    evicted: dict[str, set[str]] = {at: set() for at in members}
    for gang, nodes in here:
        for node in nodes:
            (evicted if gang.replicated else asked)[root(node)].add(gang.name)
    return tuple(
        UpgradeGroup(
            name=group_name(nodes),
            nodes=tuple(nodes),
            gangs=tuple(sorted(asked[at])),
            evicted=tuple(sorted(evicted[at])),
        )
        for at, nodes in sorted(members.items(), key=lambda item: item[1][0])
    )
