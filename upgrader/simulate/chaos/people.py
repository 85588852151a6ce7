"""People beside the rollout: they pause the plan, resume, abort or delete it."""

from upgrader.api.resources import UPGRADE_PLANS
from upgrader.core.phases import Run
from upgrader.simulate.apiserver.store import ObjectStore
from upgrader.simulate.chaos.draws import Draws
from upgrader.simulate.chaos.fleets import PLAN

_DELETE = "delete"
_WISHES = (Run.PAUSE, Run.GO, Run.PAUSE, Run.GO, Run.ABORT, Run.ABORT_AND_UNDO, _DELETE)
_FINAL = {Run.ABORT.value, Run.ABORT_AND_UNDO.value}


class People:
    """Whoever may change the plan's spec."""

    def __init__(self, store: ObjectStore, draws: Draws) -> None:
        self._store, self._draws = store, draws

    def act(self) -> None:
        """One wish for the plan; what was aborted stays so."""
        wish = self._draws.among(_WISHES)
        plan = self._store.stored(UPGRADE_PLANS, PLAN)
        if plan is None:
            return
        if wish == _DELETE:
            self._store.mark_deleted(UPGRADE_PLANS, PLAN)
        elif plan.value["spec"].get("run") not in _FINAL:
            self._wish(str(wish))

    def calm(self) -> None:
        """Nobody keeps the plan paused."""
        plan = self._store.stored(UPGRADE_PLANS, PLAN)
        if plan is not None and plan.value["spec"].get("run") == Run.PAUSE.value:
            self._wish(Run.GO.value)

    def _wish(self, run: str) -> None:
        self._store.change(UPGRADE_PLANS, PLAN, {"spec": {"run": run}})
