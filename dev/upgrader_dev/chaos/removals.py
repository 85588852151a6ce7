"""Forced deletions: objects of the operator are removed regardless of their finalizers."""

from typing import Any

from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    DAEMONSETS,
    DRIVER_IMAGES,
    JOBS,
    NODE_UPGRADES,
    PODS,
    UPGRADE_PLANS,
    ResourceKind,
)
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.laws.cluster_state import is_of_operator
from upgrader_dev.simulated.apiserver.store import ObjectStore

OPERATOR_KINDS: tuple[ResourceKind[Any], ...] = (CHECKPOINT_REQUESTS, NODE_UPGRADES, UPGRADE_PLANS, DRIVER_IMAGES)
NAMESPACE_KINDS: tuple[ResourceKind[Any], ...] = (JOBS, PODS, DAEMONSETS)


class Removals:
    """Removes objects by force."""

    def __init__(self, store: ObjectStore, draws: Draws) -> None:
        self._store, self._draws = store, draws

    def remove_object(self) -> None:
        """Remove one object of the operator."""
        kind = self._draws.draw_choice([*OPERATOR_KINDS, *NAMESPACE_KINDS])
        objects = [stored.value for stored in self._store.list_stored(kind)]
        if kind in NAMESPACE_KINDS:
            objects = [value for value in objects if is_of_operator(value)]
        if objects:
            meta = self._draws.draw_choice(objects)["metadata"]
            self._store.remove(kind, meta["name"], meta.get("namespace", ""))
