"""Users who pause, resume, abort or delete plans during a rollout."""

from upgrader.api.resources import UPGRADE_PLANS
from upgrader.core.model.phases import DesiredState
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.rollouts import PLAN, PLANS
from upgrader_dev.simulated.apiserver.store import ObjectStore

_DELETE = "delete"
_ACTIONS = (
    DesiredState.PAUSED,
    DesiredState.RUNNING,
    DesiredState.PAUSED,
    DesiredState.RUNNING,
    DesiredState.ABORTED,
    DesiredState.ROLLED_BACK,
    _DELETE,
)
_FINAL = {DesiredState.ABORTED.value, DesiredState.ROLLED_BACK.value}


class Users:
    """Users who change the spec of plans."""

    def __init__(self, store: ObjectStore, draws: Draws) -> None:
        self._store, self._draws = store, draws
        self._plan_draws = draws.stream_for("which plan")

    def change_plan(self) -> None:
        """Change one plan; an aborted plan stays aborted."""
        action = self._draws.draw_choice(_ACTIONS)
        name = self._plan_draws.draw_choice([name for name in PLANS if self._plan_state(name) is not None] or [PLAN])
        state = self._plan_state(name)
        if state is None:
            return
        if action == _DELETE:
            self._store.mark_deleted(UPGRADE_PLANS, name)
        elif state not in _FINAL:
            self._set_plan_state(name, str(action))

    def resume_plans(self) -> None:
        """Resume paused plans."""
        for name in PLANS:
            if self._plan_state(name) == DesiredState.PAUSED.value:
                self._set_plan_state(name, DesiredState.RUNNING.value)

    def _plan_state(self, name: str) -> str | None:
        """The desired state of a plan; None if the plan does not exist."""
        plan = self._store.find_stored(UPGRADE_PLANS, name)
        return str(plan.value["spec"].get("state", "")) if plan is not None else None

    def _set_plan_state(self, name: str, state: str) -> None:
        self._store.change(UPGRADE_PLANS, name, {"spec": {"state": state}})
