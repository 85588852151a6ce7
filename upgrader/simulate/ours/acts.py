"""Doing to the simulated cluster what was decided, and recording it as reconcile does."""

from collections.abc import Callable
from datetime import timedelta

from upgrader.core.checkpoint_request import RESTARTED_EARLY
from upgrader.core.orders import OrderResult, Reason
from upgrader.core.phases import NodePhase, RequestPhase, ends, row
from upgrader.core.request_facts import GangAct, GangDecision, RequestView
from upgrader.core.steering import Placement
from upgrader.core.visit_facts import Act, Decision, NodeView, Outcome, PodResult
from upgrader.simulate.ours.objects import ABSENT, WAITING, Request, UpgradeGroup, Visit
from upgrader.simulate.world import World

SHARES = {"off": 0.1, "visit": 0.4, "driver": 0.2, "plugin": 0.1, "validate": 0.2}
"""Parts of a visit's time."""

DONE = PodResult(outcome=Outcome.SUCCEEDED, result=OrderResult(reason=Reason.DONE, message="done"))
BUSY = PodResult(outcome=Outcome.FAILED, result=OrderResult(reason=Reason.BUSY, message="the driver is in use"))

_BY_GROUP = frozenset({RequestPhase.REQUESTED, RequestPhase.PARKED, RequestPhase.EXPIRED})


class Acts:
    """Acts on the world; `look` is called when something of a group has changed by itself."""

    def __init__(self, world: World, look: Callable[[str], None]) -> None:
        self._world, self._look = world, look
        self._attempts: dict[str, int] = {}

    # ---------------------------------------------------------------------------------------------- nodes

    def visit(self, group: UpgradeGroup, visit: Visit, view: NodeView, decision: Decision) -> bool:
        """Acts of one visit, then its record; whether anything was done."""
        for act in decision.acts:
            self._node(group, visit, act)
        if decision.phase is visit.phase and decision.reverting == visit.reverting:
            visit.deadline = decision.deadline or visit.deadline
            return bool(decision.acts)
        now = self._world.agenda.time
        if decision.phase is NodePhase.TAINTING and view.node is not None:
            visit.gpus = view.node.gpus
        if (decision.reverting and not visit.reverting) or decision.phase is NodePhase.RELEASING:
            visit.why = visit.why or decision.message
        if decision.phase is NodePhase.UNLOADING:
            self._again(visit)
        seconds = row(decision.phase).seconds
        visit.phase, visit.reverting = decision.phase, decision.reverting
        visit.began[decision.phase] = now
        visit.failure, visit.message, visit.since = decision.failure, decision.message, now
        visit.deadline = None if seconds is None or ends(decision.phase) else now + timedelta(seconds=seconds)
        if decision.phase is NodePhase.PREPARED:
            visit.deadline = group.ask_until
        visit.walked = visit.walked or decision.phase is NodePhase.LOADING
        visit.ended_at = now if ends(decision.phase) else None
        return True

    def _again(self, visit: Visit) -> None:
        """Before the walk through Unloading and Loading: a revert has node pods of its own."""
        self._attempts[visit.uid] = self._attempts.get(visit.uid, -1) + 1
        visit.visiting = visit.validate = ABSENT
        node = self._world.nodes.get(visit.node)
        visit.operands = 0 if node is None or node.operands == "off" else 2
        visit.driver_ready = visit.plugin_ready = False

    def seconds(self, visit: Visit) -> int:
        """How long the walk from Off to valid takes."""
        return self._world.chances.visit(visit.node, self._attempts.get(visit.uid, 0))

    def _node(self, group: UpgradeGroup, visit: Visit, act: Act) -> None:
        if act is Act.CANCEL:
            visit.visiting = ABSENT
            return
        world, node = self._world, self._world.nodes[visit.node]
        match act:
            case Act.PREPARE:
                visit.prepare = WAITING
                self._later(visit, world.chances.prepare(visit.node), prepare=DONE)
            case Act.CLOSE:
                node.change(visit=visit.uid, maintenance=group.name, closed_at=world.agenda.time)
                world.ledger.close(node.name, world.now)
            case Act.OPERANDS_OFF:
                node.change(driver_key="none", operands="off", revision="")
                self._part(visit, "off", operands=0)
            case Act.VISIT:
                visit.visiting = WAITING
                fails = world.failing.get(visit.node, 0)
                world.failing[visit.node] = max(0, fails - 1)
                self._part(visit, "visit", visiting=BUSY if fails else DONE)
            case Act.DRIVER_ON:
                node.change(driver_key=visit.goal[0])
                self._part(visit, "driver", driver_ready=True)
            case Act.OPERANDS_ON:
                node.change(operands="on")
                self._part(visit, "plugin", plugin_ready=True)
            case Act.VALIDATE:
                visit.validate = WAITING
                self._part(visit, "validate", validate=DONE)
            case Act.GIVE_BACK:
                arrived = visit.walked and node.operands == "on" and not node.revision
                revision = visit.goal[1] if arrived else node.revision
                node.change(visit="", released_by=visit.uid, maintenance="", closed_at=None, revision=revision)
                world.ledger.release(node.name, world.now)
            case Act.EVICT | Act.REMOVE_DRIVER | Act.CANCEL_FIRST:
                raise AssertionError("no pod of a simulation is replicated, no node reboots by itself, no visit hangs")
        world.tell(node.name)

    def _part(self, visit: Visit, part: str, **facts: object) -> None:
        self._later(visit, max(1, round(SHARES[part] * self.seconds(visit))), **facts)

    def _later(self, visit: Visit, seconds: int, **facts: object) -> None:
        attempt = self._attempts.get(visit.uid, -1)

        def arrive() -> None:
            if self._attempts.get(visit.uid, -1) == attempt:
                for name, value in facts.items():
                    setattr(visit, name, value)
                self._look(visit.group)

        self._world.agenda.after(seconds, arrive)

    # ---------------------------------------------------------------------------------------------- gangs

    def request(
        self,
        group: UpgradeGroup,
        request: Request,
        view: RequestView,
        decision: GangDecision,
        where: Callable[[], Placement],
    ) -> bool:
        """Acts of one request, then its record; whether anything was done."""
        for act in decision.acts:
            self._gang(request, act, where)
        now = self._world.agenda.time
        if decision.new_id:
            request.request_id = max(request.request_id + 1, int(now.timestamp()))
            request.asked_at, request.acks, request.step, request.marked_at = now, (), None, None
        if decision.admitted:
            request.marked_at = now
        if decision.phase is request.phase:
            return bool(decision.acts) or decision.admitted
        match decision.phase:
            case RequestPhase.PARKED:
                request.acks, request.step = view.answers, decision.step
            case RequestPhase.STOPPING:
                request.stopped_at = now
                request.restart_by = now + timedelta(seconds=row(RequestPhase.STOPPED).seconds or 0)
            case RequestPhase.RESTARTING:
                request.restarted_at = now
                request.restarted_early = decision.reason == RESTARTED_EARLY
            case RequestPhase.WITHDRAWN:
                request.stopped_at = request.restart_by = None
            case _:
                pass
        seconds = row(decision.phase).seconds
        request.phase, request.reason, request.message = decision.phase, decision.reason, decision.message
        request.began[decision.phase] = now
        request.deadline = None if seconds is None or ends(decision.phase) else now + timedelta(seconds=seconds)
        if decision.phase in _BY_GROUP:
            request.deadline = group.ask_until
        return True

    def _gang(self, request: Request, act: GangAct, where: Callable[[], Placement]) -> None:
        job = self._world.jobs[request.job]
        match act:
            case GangAct.ASK:
                self._world.ask(job, request.request_id, request.park_seconds)
            case GangAct.WITHDRAW:
                self._world.withdraw(job)
            case GangAct.STOP:
                self._world.stop(job, request.name)
            case GangAct.RESUME:
                self._world.resume(job, where())
            case GangAct.FENCE:
                pass  # a stop that is on its way is a matter of two controllers; here is one
