"""Objects of ours that somebody deletes by force: their finalizers are taken away, and nobody is told."""

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
from upgrader_dev.chaos.laws.known import is_ours
from upgrader_dev.simulated.apiserver.store import ObjectStore

OWN: tuple[ResourceKind[Any], ...] = (CHECKPOINT_REQUESTS, NODE_UPGRADES, UPGRADE_PLANS, DRIVER_IMAGES)
IN_OUR_NAMESPACE: tuple[ResourceKind[Any], ...] = (JOBS, PODS, DAEMONSETS)


class Removals:
    """Takes objects away."""

    def __init__(self, store: ObjectStore, draws: Draws) -> None:
        self._store, self._draws = store, draws

    def remove_something(self) -> None:
        """One object of ours."""
        kind = self._draws.among([*OWN, *IN_OUR_NAMESPACE])
        found = [stored.value for stored in self._store.all_stored(kind)]
        if kind in IN_OUR_NAMESPACE:
            found = [value for value in found if is_ours(value)]
        if found:
            meta = self._draws.among(found)["metadata"]
            self._store.remove(kind, meta["name"], meta.get("namespace", ""))
