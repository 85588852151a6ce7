"""Execution of decisions on the simulated cluster, and their records as in reconcile."""

from collections.abc import Callable
from datetime import timedelta

from upgrader.core.checkpoint_request.request_machine import RESTARTED_EARLY
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision, RequestView
from upgrader.core.model.phases import NodePhase, RequestPhase, is_final, transition_of
from upgrader.core.model.upgrade_limits import gang_stop_seconds
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.node_upgrade.upgrade_state import Act, Decision, NodeView, PodOutcome, PodResult
from upgrader.core.workloads.placement import Placement
from upgrader.simulate.controller.objects import ABSENT, WAITING, Request, SimGroup, Upgrade
from upgrader.simulate.world import SimulatedCluster

SHARES = {"off": 0.1, "upgrade": 0.4, "driver": 0.2, "plugin": 0.1, "validate": 0.2}
"""Parts of a node upgrade's duration."""

DONE = PodResult(outcome=PodOutcome.SUCCEEDED, result=OrderResult(reason=Reason.DONE, message="done"))
BUSY = PodResult(outcome=PodOutcome.FAILED, result=OrderResult(reason=Reason.BUSY, message="the driver is in use"))

_BY_GROUP = frozenset({RequestPhase.REQUESTED, RequestPhase.PARKED, RequestPhase.EXPIRED})


class ActionExecutor:
    """Executes actions on the cluster; `look` schedules a step of a group whose state changed."""

    def __init__(self, world: SimulatedCluster, schedule_step: Callable[[str], None]) -> None:
        self._world, self._schedule_step = world, schedule_step
        self._attempts: dict[str, int] = {}

    # ---------------------------------------------------------------------------------------------- nodes

    def upgrade(self, group: SimGroup, upgrade: Upgrade, view: NodeView, decision: Decision) -> bool:
        """Execute the actions of one upgrade, then record it; returns whether anything was done."""
        for act in decision.acts:
            self._act_on_node(group, upgrade, act)
        if decision.phase is upgrade.phase and decision.reverting == upgrade.reverting:
            upgrade.deadline = decision.deadline or upgrade.deadline
            return bool(decision.acts)
        now = self._world.queue.time
        if decision.phase is NodePhase.TAINTING and view.node is not None:
            upgrade.gpus = view.node.gpus
        if (decision.reverting and not upgrade.reverting) or decision.phase is NodePhase.RELEASING:
            upgrade.revert_message = upgrade.revert_message or decision.message
        if decision.phase is NodePhase.UNLOADING:
            self._reset_node_pods(upgrade)
        seconds = transition_of(decision.phase).seconds
        upgrade.phase, upgrade.reverting = decision.phase, decision.reverting
        upgrade.began[decision.phase] = now
        upgrade.failure, upgrade.message, upgrade.since = decision.failure, decision.message, now
        upgrade.deadline = None if seconds is None or is_final(decision.phase) else now + timedelta(seconds=seconds)
        if decision.phase is NodePhase.PREPARED:
            upgrade.deadline = group.ask_until
        upgrade.reached_loading = upgrade.reached_loading or decision.phase is NodePhase.LOADING
        upgrade.ended_at = now if is_final(decision.phase) else None
        return True

    def _reset_node_pods(self, upgrade: Upgrade) -> None:
        """Start the pass through Unloading and Loading: a revert has separate node pods."""
        self._attempts[upgrade.uid] = self._attempts.get(upgrade.uid, -1) + 1
        upgrade.upgrading = upgrade.validate = ABSENT
        node = self._world.nodes.get(upgrade.node)
        upgrade.operands = 0 if node is None or node.operands == "off" else 2
        upgrade.driver_ready = upgrade.plugin_ready = False

    def seconds(self, upgrade: Upgrade) -> int:
        """The duration from Off to validated, in seconds."""
        return self._world.sampler.draw_upgrade(upgrade.node, self._attempts.get(upgrade.uid, 0))

    def _act_on_node(self, group: SimGroup, upgrade: Upgrade, act: Act) -> None:
        if act is Act.CANCEL:
            upgrade.upgrading = ABSENT
            return
        world, node = self._world, self._world.nodes[upgrade.node]
        match act:
            case Act.PREPARE:
                upgrade.prepare = WAITING
                self._schedule_facts(upgrade, world.sampler.draw_preparation(upgrade.node), prepare=DONE)
            case Act.CLOSE:
                node.set_fields(claimed_by=upgrade.uid, maintenance=group.name, closed_at=world.queue.time)
                world.ledger.start_outage(node.name, world.now)
            case Act.OPERANDS_OFF:
                node.set_fields(driver_key="none", operands="off", revision="")
                self._schedule_part(upgrade, "off", operands=0)
            case Act.UPGRADE:
                upgrade.upgrading = WAITING
                fails = world.failing.get(upgrade.node, 0)
                world.failing[upgrade.node] = max(0, fails - 1)
                self._schedule_part(upgrade, "upgrade", upgrading=BUSY if fails else DONE)
            case Act.DRIVER_ON:
                node.set_fields(driver_key=upgrade.goal[0])
                self._schedule_part(upgrade, "driver", driver_ready=True)
            case Act.OPERANDS_ON:
                node.set_fields(operands="on")
                self._schedule_part(upgrade, "plugin", plugin_ready=True)
            case Act.VALIDATE:
                upgrade.validate = WAITING
                self._schedule_part(upgrade, "validate", validate=DONE)
            case Act.RELEASE:
                arrived = upgrade.reached_loading and node.operands == "on" and not node.revision
                revision = upgrade.goal[1] if arrived else node.revision
                node.set_fields(
                    claimed_by="", released_by=upgrade.uid, maintenance="", closed_at=None, revision=revision
                )
                world.ledger.end_outage(node.name, world.now)
            case Act.EVICT | Act.REMOVE_DRIVER | Act.CANCEL_FIRST:
                raise AssertionError("a simulation has no replicated pods, no reboots and no hanging upgrades")
        world.notify_change(node.name)

    def _schedule_part(self, upgrade: Upgrade, part: str, **facts: object) -> None:
        self._schedule_facts(upgrade, max(1, round(SHARES[part] * self.seconds(upgrade))), **facts)

    def _schedule_facts(self, upgrade: Upgrade, seconds: int, **facts: object) -> None:
        attempt = self._attempts.get(upgrade.uid, -1)

        def arrive() -> None:
            if self._attempts.get(upgrade.uid, -1) == attempt:
                for name, value in facts.items():
                    setattr(upgrade, name, value)
                self._schedule_step(upgrade.group)

        self._world.queue.schedule_after(seconds, arrive)

    # ---------------------------------------------------------------------------------------------- gangs

    def request(
        self,
        group: SimGroup,
        request: Request,
        view: RequestView,
        decision: GangDecision,
        placement: Callable[[], Placement],
    ) -> bool:
        """Execute the actions of one request, then record it; returns whether anything was done."""
        for act in decision.acts:
            self._act_on_gang(request, act, placement)
        now = self._world.queue.time
        if decision.new_id:
            request.request_id = max(request.request_id + 1, int(now.timestamp()))
            request.asked_at, request.acks, request.step, request.admitted_at = now, (), None, None
        if decision.admitted:
            request.admitted_at = now
        if decision.phase is request.phase:
            return bool(decision.acts) or decision.admitted
        match decision.phase:
            case RequestPhase.PARKED:
                request.acks, request.step = view.answers, decision.step
            case RequestPhase.STOPPING:
                request.stopped_at = now
                request.restart_by = now + timedelta(seconds=gang_stop_seconds(()))
            case RequestPhase.RESTARTING:
                request.restarted_at = now
                request.restarted_early = decision.reason == RESTARTED_EARLY
            case RequestPhase.WITHDRAWN:
                request.stopped_at = request.restart_by = None
            case _:
                pass
        seconds = transition_of(decision.phase).seconds
        request.phase, request.reason, request.message = decision.phase, decision.reason, decision.message
        request.began[decision.phase] = now
        request.deadline = None if seconds is None or is_final(decision.phase) else now + timedelta(seconds=seconds)
        if decision.phase in _BY_GROUP:
            request.deadline = group.ask_until
        return True

    def _act_on_gang(self, request: Request, act: GangAct, placement: Callable[[], Placement]) -> None:
        job = self._world.jobs[request.job]
        match act:
            case GangAct.REQUEST:
                self._world.send_request(job, request.request_id, request.park_seconds)
            case GangAct.WITHDRAW:
                self._world.withdraw_request(job)
            case GangAct.STOP:
                self._world.stop_job(job, request.name)
            case GangAct.RESUME:
                self._world.resume_job(job, placement())
            case GangAct.FENCE:
                pass  # a pending stop concerns two controllers; a simulation has one
