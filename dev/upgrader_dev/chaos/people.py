"""People beside the rollout: they pause the plan, resume, abort or delete it."""

from upgrader.api.resources import UPGRADE_PLANS
from upgrader.core.model.phases import DesiredState
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.rollouts import PLAN, PLANS
from upgrader_dev.simulated.apiserver.store import ObjectStore

_DELETE = "delete"
_WISHES = (
    DesiredState.PAUSED,
    DesiredState.RUNNING,
    DesiredState.PAUSED,
    DesiredState.RUNNING,
    DesiredState.ABORTED,
    DesiredState.ROLLED_BACK,
    _DELETE,
)
_FINAL = {DesiredState.ABORTED.value, DesiredState.ROLLED_BACK.value}


class People:
    """Whoever may change the plan's spec."""

    def __init__(self, store: ObjectStore, draws: Draws) -> None:
        self._store, self._draws = store, draws
        self._which = draws.of("which plan")

    def act(self) -> None:
        """One wish for a plan; what was aborted stays so."""
        wish = self._draws.among(_WISHES)
        name = self._which.among([name for name in PLANS if self._state(name) is not None] or [PLAN])
        state = self._state(name)
        if state is None:
            return
        if wish == _DELETE:
            self._store.mark_deleted(UPGRADE_PLANS, name)
        elif state not in _FINAL:
            self._wish(name, str(wish))

    def calm(self) -> None:
        """Nobody keeps a plan paused."""
        for name in PLANS:
            if self._state(name) == DesiredState.PAUSED.value:
                self._wish(name, DesiredState.RUNNING.value)

    def _state(self, name: str) -> str | None:
        """The desired state of a plan; None where there is none of that name."""
        plan = self._store.stored(UPGRADE_PLANS, name)
        return str(plan.value["spec"].get("state", "")) if plan is not None else None

    def _wish(self, name: str, state: str) -> None:
        self._store.change(UPGRADE_PLANS, name, {"spec": {"state": state}})
