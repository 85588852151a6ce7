"""A group of nodes and gangs as plain values: both state machines walk it together, and may be broken off anywhere.

Facts are read once at the beginning of a step, gangs decide first, then nodes, as
reconcile/upgrade_group/group_reconciler does it; what a decision does to the world is written out here in a line per
act. Nothing else of the product is involved, so that walks are fast and every fact can be changed between two steps.

Acts that could cost somebody work are judged here by what is so in this world, not by what the rules were told:
`wrongs` says what should not have been done.
"""

from datetime import timedelta

from tests.support.group_actors import OLD, Box, Troupe
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision, GroupOfGang, OwnerFacts, RequestView
from upgrader.core.model.fleet import MemberFacts
from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason, is_final, transition_of
from upgrader.core.node_upgrade import upgrade_machine
from upgrader.core.node_upgrade.upgrade_state import (
    Act,
    Decision,
    GroupView,
    NodeView,
    OperandFacts,
    OtherPod,
    PodOutcome,
    RequestFacts,
    UpgradeJobs,
    pods_left,
)
from upgrader_dev.simulated.cluster.ports import START

PARK = timedelta(seconds=2100)
ASK_UNTIL = START + timedelta(seconds=5400)


class World:
    """One group, from Pending to the end of everything."""

    def __init__(self, boxes: list[Box], troupes: list[Troupe]) -> None:
        self.boxes = boxes
        self.troupes = troupes
        self.now = START
        self.undo = False
        self.spares = False  # upgraded nodes are free for its gangs
        self.arrows: set[tuple[str, str]] = set()
        self.wrongs: list[str] = []

    # ---- what is read

    def node_view(self, box: Box) -> NodeView:
        going = {RequestPhase.PARKED, RequestPhase.STOPPING, RequestPhase.STOPPED}
        others = [
            OtherPod(name=uid, namespace="default", uid=uid, member=troupe.phase in going and uid in troupe.uids)
            for troupe in self.troupes
            for uid in troupe.pods
            if box is self.boxes[0] and not troupe.ahead
        ]
        if box.stranger:
            others.append(OtherPod(name="stranger", namespace="default", uid="stranger"))
        goal = box.goal
        loaded = box.facts is not None and box.facts.driver_key == goal and bool(goal)
        return NodeView(
            name=box.name,
            uid=f"upgrade-{box.name}",
            reason=UpgradeReason.ROLLOUT,
            phase=box.phase,
            phase_since=box.since,
            deadline=box.deadline,
            reverting=box.reverting,
            failure=box.failure,
            node=box.facts,
            source_key="" if box.fresh else OLD,
            driver_key=goal,
            plugin_key=goal,
            revision=goal,
            prepare=box.pod_result("prepare"),
            upgrade=box.pod_result("upgrade"),
            validate=box.pod_result("validate"),
            upgrade_jobs=UpgradeJobs(first=box.first_upgrades, pods=int(box.first_upgrades)),
            driver=OperandFacts(pods=box.driver, ready=box.driver if loaded else 0),
            plugin=OperandFacts(pods=box.plugin, ready=box.plugin),
            others=tuple(others),
        )

    def request_view(self, troupe: Troupe) -> RequestView:
        assert troupe.phase is not None
        present = tuple(
            MemberFacts(
                pod=uid,
                uid=uid,
                namespace="default",
                node="",
                container="c",
                phase="Running",
                request=request,
                volume_paths=("/data",),
            )
            for uid, request in troupe.pods.items()
        )
        fresh = troupe.phase is RequestPhase.REQUESTED or (
            troupe.phase is RequestPhase.STOPPING and not troupe.suspended
        )
        return RequestView(
            name=f"request-{troupe.name}",
            gang=troupe.name,
            phase=troupe.phase,
            deadline=troupe.deadline,
            request_id=troupe.request_id,
            asked_at=troupe.asked_at,
            stop_before=troupe.asked_at + PARK,
            restart_by=troupe.restart_by,
            members=troupe.uids,
            present=present,
            answers=tuple(troupe.answers.values()) if fresh else troupe.recorded,
            owner=OwnerFacts(
                present=not troupe.deleted,
                suspended=troupe.suspended,
                stopped_by=troupe.stopped_by,
                active=len(troupe.pods),
                finished=troupe.finished,
                wanted=troupe.members,
            ),
            acknowledged_step=troupe.step,
            progress=tuple(troupe.progress.get(uid) for uid in troupe.pods),
        )

    # ---- one step of the controller

    def step(self, *, broken_after: int = 10_000) -> None:
        """Decide and act; the controller dies after so many writes (acts and records), and nothing more is done."""
        left = [broken_after]
        views = [self.node_view(box) for box in self.boxes]
        self._ask(views)
        requests = {one.name: self.request_view(one) for one in self.troupes if one.phase is not None}
        facts = self._facts(requests)
        around = GroupOfGang(nodes=tuple(one.phase for one in views), undo=self._undone(views), ask_until=ASK_UNTIL)
        unready = {name: request_machine.explain_unready(view, around, self.now) for name, view in requests.items()}
        for troupe in self.troupes:
            if troupe.name in requests:
                forbidden = next((why for name, why in unready.items() if name != troupe.name and why), "")
                self._step_gang(troupe, requests, views, forbidden, left)
        group = GroupView(nodes=tuple(views), requests=facts, gangs=len(self.troupes), undo=self.undo)
        for box, view in zip(self.boxes, views, strict=True):
            self._walk(box, view, group, left)

    def _ask(self, views: list[NodeView]) -> None:
        """The engine makes requests when all nodes are prepared."""
        if self.undo or any(one.phase is not NodePhase.PREPARED for one in views):
            return
        for troupe in self.troupes:
            if troupe.phase is None:
                troupe.phase, troupe.asked_at, troupe.uids = RequestPhase.REQUESTED, self.now, tuple(troupe.pods)
                troupe.deadline = ASK_UNTIL

    def _facts(self, requests: dict[str, RequestView]) -> tuple[RequestFacts, ...]:
        return tuple(
            RequestFacts(name=view.name, gang=view.gang, phase=view.phase, bound=not view.owner.suspended)
            for view in requests.values()
        )

    def _undone(self, views: list[NodeView]) -> bool:
        return self.undo and all(one.phase in upgrade_machine.BEFORE_OFF or is_final(one.phase) for one in views)

    def _step_gang(
        self, troupe: Troupe, requests: dict[str, RequestView], views: list[NodeView], forbidden: str, left: list[int]
    ) -> None:
        view = requests[troupe.name]
        around = GroupOfGang(
            nodes=tuple(one.phase for one in views),
            siblings=tuple(one.phase for name, one in requests.items() if name != troupe.name),
            undo=self._undone(views),
            ask_until=ASK_UNTIL,
            forbidden=forbidden,
            pods_left=pods_left(views),
            spares=self.spares and not any(box.reverting for box in self.boxes),
        )
        decision = request_machine.decide(view, around, self.now)
        for act in decision.acts:
            if _spent(left):
                return
            self._gang_act(troupe, view, act)
        if (decision.phase is not view.phase or decision.new_id) and not _spent(left):
            self._gang_record(troupe, view, decision)

    def _gang_act(self, troupe: Troupe, view: RequestView, act: GangAct) -> None:
        match act:
            case GangAct.REQUEST:
                troupe.pods = dict.fromkeys(troupe.pods, str(troupe.request_id))
            case GangAct.WITHDRAW:
                troupe.pods = dict.fromkeys(troupe.pods, "")
            case GangAct.STOP:
                self._judge_stop(troupe)
                troupe.suspended, troupe.stopped_by = True, view.name
                troupe.stops += 1
            case GangAct.RESUME:
                resumed = troupe.suspended
                troupe.suspended, troupe.stopped_by = False, ""
                if resumed and not troupe.finished:
                    troupe.run()

    def _gang_record(self, troupe: Troupe, view: RequestView, decision: GangDecision) -> None:
        self.arrows.add((view.phase.value, decision.phase.value))
        if decision.new_id:
            troupe.request_id += 1
            troupe.asked_at, troupe.recorded, troupe.answers = self.now, (), {}
        seconds = transition_of(decision.phase).seconds
        troupe.phase = decision.phase
        if decision.reason == request_machine.RESTARTED_EARLY:
            self._judge_early_restart(troupe)
            troupe.ahead = True
        troupe.step = decision.step
        asking = decision.phase in {RequestPhase.REQUESTED, RequestPhase.PARKED, RequestPhase.EXPIRED}
        ending = None if seconds is None else self.now + timedelta(seconds=seconds)
        troupe.deadline = ASK_UNTIL if asking else ending
        if decision.phase is RequestPhase.PARKED:
            troupe.recorded = view.answers
        if decision.phase is RequestPhase.STOPPING:
            troupe.restart_by = self.now + timedelta(seconds=7200)

    def _walk(self, box: Box, view: NodeView, group: GroupView, left: list[int]) -> None:
        decision = upgrade_machine.decide(view, group, self.now)
        for act in decision.acts:
            if _spent(left):
                return
            self._node_act(box, act)
        changed = decision.phase is not view.phase or decision.reverting != view.reverting
        if changed and not _spent(left):
            self._node_record(box, view, decision)

    def _node_act(self, box: Box, act: Act) -> None:
        match act:
            case Act.PREPARE:
                box.begin("prepare")
            case Act.CLOSE:
                box.mark(claimed_by=f"upgrade-{box.name}")
            case Act.EVICT:
                raise AssertionError("nothing here may be evicted")
            case Act.OPERANDS_OFF:
                box.mark(driver_key="none", operands="off", revision="")
                box.driver = box.plugin = 0
            case Act.UPGRADE:
                if box.stranger or box.first_upgrades:
                    self.wrongs.append(f"{box.name} was upgraded under a stranger, or twice at the same time")
                box.begin("upgrade")
            case Act.CANCEL_FIRST:
                box.pod_results.pop("upgrade", None)
            case Act.DRIVER_ON:
                box.mark(driver_key=box.goal or "none", plugin_key=box.goal)
            case Act.OPERANDS_ON:
                box.mark(operands="on")
            case Act.VALIDATE:
                box.begin("validate")
            case Act.RELEASE:
                box.mark(claimed_by="", released_by=f"upgrade-{box.name}", revision=box.goal)

    def _node_record(self, box: Box, view: NodeView, decision: Decision) -> None:
        self.arrows.add((view.phase.value, decision.phase.value))
        self._judge_record(box, view, decision)
        box.reverts += decision.reverting and not view.reverting
        box.phase, box.reverting, box.failure = decision.phase, decision.reverting, decision.failure
        seconds = transition_of(decision.phase).seconds
        box.since = self.now
        box.deadline = None if seconds is None else self.now + timedelta(seconds=seconds)

    # ---- what should not have been done

    def _judge_stop(self, troupe: Troupe) -> None:
        said = [troupe.answers.get(uid) for uid in troupe.pods]
        whole = [one for one in said if one is not None]
        safe = (
            len(whole) == len(said)
            and all(one.parked and not one.refused and one.uri.startswith("/data/") for one in whole)
            and all(one.request_id == troupe.request_id for one in whole)
            and len({one.step for one in whole}) == 1
        )
        if not safe:
            self.wrongs.append(f"{troupe.name} was stopped with {said}")
        if self.now >= troupe.asked_at + PARK - timedelta(seconds=60):
            self.wrongs.append(f"{troupe.name} was stopped when it may have trained on")
        if any(box.facts is not None and not box.facts.claimed_by for box in self.boxes):
            self.wrongs.append(f"{troupe.name} was stopped before its nodes were closed")
        if any(box.stranger for box in self.boxes if box.facts is not None):
            self.wrongs.append(f"{troupe.name} was stopped although a pod may keep its nodes from being upgraded")
        fellows = [one for one in self.troupes if one is not troupe and one.phase is RequestPhase.WITHDRAWN]
        if fellows:
            self.wrongs.append(f"{troupe.name} was stopped although {fellows[0].name} was released")

    def _judge_early_restart(self, troupe: Troupe) -> None:
        if any(box.phase not in request_machine.SWAPPING for box in self.boxes):
            self.wrongs.append(f"{troupe.name} went on elsewhere while its nodes waited for it")
        if not troupe.suspended or troupe.stopped_by != f"request-{troupe.name}":
            self.wrongs.append(f"{troupe.name} went on elsewhere though we did not stop it")

    def _judge_record(self, box: Box, view: NodeView, decision: Decision) -> None:
        if decision.phase is NodePhase.DRAINING and self.now < box.since + timedelta(seconds=5):
            self.wrongs.append(f"{box.name} was not looked at a second time")
        here = [
            uid for one in self.troupes if not (one.meddled or one.ahead) and box is self.boxes[0] for uid in one.pods
        ]
        if view.phase is NodePhase.DRAINING and decision.phase is NodePhase.UNLOADING and (here or box.stranger):
            self.wrongs.append(f"{box.name} was switched off under {here or 'a stranger'}")
        valid = view.phase is NodePhase.VALIDATING and view.validate.outcome is PodOutcome.SUCCEEDED
        if valid and decision.failure == "RevertFailed":
            self.wrongs.append(f"{box.name} came back well and was given up for its siblings")

    # ---- what may be asked of it

    @property
    def over(self) -> bool:
        """Whether every upgrade and every request has ended."""
        phases = [one.phase for one in self.troupes if one.phase is not None]
        return all(is_final(one.phase) for one in self.boxes) and all(is_final(phase) for phase in phases)


def _spent(left: list[int]) -> bool:
    left[0] -= 1
    return left[0] < 0
