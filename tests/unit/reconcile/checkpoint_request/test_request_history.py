"""Every way to ask and to answer, refusals, lanes and deadlines in whole rollouts, in virtual time."""

from datetime import timedelta

import pytest

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import CLAIMS, JOBS, PODS, UPGRADE_PLANS
from upgrader.checkpoint.signal import WITHDRAW
from upgrader.core.model.phases import PlanPhase, RequestPhase
from upgrader.core.replies import CommandResult, Reply
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig, start_training

GROUP = "gpu-upgrader.io"
QUICK = {"timeoutSeconds": 30, "retrySeconds": 86400}


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def gangs(rig: Rig, *jobs: str, nodes: int = 2, members: int = 2, gpus: int = 8, **declared: str) -> str:
    """A pool where these jobs train, each over all nodes, and declare what is given beside their method."""
    await pool(rig, nodes=nodes, images=("1.0", "2.0"))
    for job in jobs:
        rig.fleet.add_job(job, members=members, gpus=gpus // len(jobs))
        said = {f"{GROUP}/{name.replace('_', '-')}": value for name, value in declared.items()}
        rig.cluster.store.change(JOBS, job, {"spec": {"template": {"metadata": {"annotations": said}}}}, "default")
    await rig.run_until(lambda: all(rig.fleet.trainers[job].step > 10 for job in jobs))
    return rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))


def honest(pod: Object, request: int, step: int, **changes: object) -> Object:
    said = {"requestId": request, "podUid": pod["metadata"]["uid"], "step": step, "uri": "/data/x", "parked": True}
    return {**said, **changes}


def rank(pod: Object) -> int:
    return int(pod["metadata"]["labels"]["index"])


def reasons(rig: Rig) -> list[tuple[RequestPhase, str]]:
    return [(one.status.phase, one.status.reason) for one in rig.requests()]


def marked(rig: Rig) -> dict[str, str]:
    """Members that were asked, and under which number."""
    found = {
        pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(names.ANNOTATION_REQUEST)
        for pod in rig.cluster.store.copy_all(PODS)
    }
    return {name: number for name, number in found.items() if number}


async def _pass(rig: Rig, seconds: int) -> None:
    end = rig.cluster.clock.now() + timedelta(seconds=seconds)
    await rig.run_until(lambda: rig.cluster.clock.now() >= end, seconds + 100, stride=60)


# ---- ways

WAYS = {
    "exec": {"checkpoint_method": "exec", "checkpoint_command": '["/app/save", "--all"]'},
    "http": {"checkpoint_method": "http", "checkpoint_endpoint": ":8080/checkpoint"},
    "signal": {"checkpoint_method": "signal", "checkpoint_signal": "SIGUSR1"},
    "file": {"checkpoint_method": "file"},
}
HEARD = {
    "exec": {("exec", "request")},
    "http": {("http", "POST")},
    "signal": {("exec", "USR1")},
    "file": set(),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_rollout_loses_nothing_whichever_way_its_job_is_asked(rig: Rig, way: str) -> None:
    rig.apply_plan("up", await gangs(rig, "gang", **WAYS[way]))
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert [(one.spec.method, one.status.phase) for one in rig.requests()] == [(way, RequestPhase.RESTORED)]
    assert {(how, action) for _, how, action in rig.pod_programs.received} == HEARD[way]
    assert (rig.fleet.trainers["gang"].stops, rig.fleet.trainers["gang"].lost) == (2, 0)
    rig.assert_nothing_left()


@pytest.mark.parametrize("way", ["exec", "http", "signal"])
async def test_members_are_told_when_they_may_train_on(rig: Rig, way: str) -> None:
    rig.apply_plan("up", await gangs(rig, "gang", **WAYS[way]), checkpoint=QUICK)
    rig.fleet.trainers["gang"].answers = lambda pod, request, step: honest(pod, request, step, parked=False)
    await rig.run_until(lambda: reasons(rig) == [(RequestPhase.WITHDRAWN, "NotParked")], 2000, stride=20)
    told = {action for _, _, action in rig.pod_programs.received}
    assert told == {"exec": {"request", "withdraw"}, "http": {"POST", "DELETE"}, "signal": {"USR1", WITHDRAW[-1]}}[way]
    assert marked(rig) == {}


async def test_the_first_method_that_works_for_every_member_is_used(rig: Rig) -> None:
    rig.apply_plan(
        "up", await gangs(rig, "gang", **{**WAYS["http"], **WAYS["exec"], "checkpoint_method": "http,exec,file"})
    )
    rig.cluster.server = lambda *_: None
    rig.cluster.program = lambda *_: CommandResult(output=b"", code=127)
    await rig.run_until(lambda: rig.is_over("up"))
    assert [(one.spec.method, one.spec.fallbacks) for one in rig.requests()] == [("file", [])]
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()


async def test_only_the_leader_has_to_answer_where_a_job_says_so(rig: Rig) -> None:
    rig.apply_plan("up", await gangs(rig, "gang", ack_scope="leader"))
    rig.fleet.trainers["gang"].answers = lambda pod, request, step: (
        honest(pod, request, step) if rank(pod) == 0 else None
    )
    await rig.run_until(lambda: rig.is_over("up"))
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.RESTORED], rig.describe_state()
    assert rig.fleet.trainers["gang"].lost == 0


async def test_a_job_that_may_lose_some_work_need_not_park(rig: Rig) -> None:
    rig.apply_plan("up", await gangs(rig, "gang", max_loss="5m"))
    rig.fleet.trainers["gang"].answers = lambda pod, request, step: honest(pod, request, step, parked=False)
    await rig.run_until(lambda: rig.is_over("up"))
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.RESTORED], rig.describe_state()
    rig.assert_nothing_left()


async def test_times_that_the_job_tells_are_not_judged(rig: Rig) -> None:
    """A member whose clock is an hour ahead, or behind, changes nothing: askedAt and now are both the controller's."""
    rig.apply_plan("up", await gangs(rig, "gang", max_loss="5m"))
    rig.fleet.trainers["gang"].answers = lambda pod, request, step: honest(
        pod, request, step, parked=False, savedAt="2026-11-21T08:00:00Z" if rank(pod) else "2026-11-21T11:00:00Z"
    )
    await rig.run_until(lambda: rig.is_over("up"))
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.RESTORED], rig.describe_state()


async def test_128_members_acknowledge_at_the_same_moment(rig: Rig) -> None:
    rig.apply_plan("up", await gangs(rig, "gang", nodes=16, members=128, gpus=1), checkpoint=QUICK)
    await rig.run_until(lambda: bool(rig.requests()) and rig.requests()[0].status.phase is RequestPhase.STOPPED)
    assert len({ack.pod_uid for ack in rig.requests()[0].status.acks}) == 128
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.fleet.trainers["gang"].lost == 0


# ---- refusals


async def test_a_gang_that_refuses_is_left_alone_as_long_as_it_wants(rig: Rig) -> None:
    """Counted and shown each time, never forced; after the third time it agrees."""
    rig.apply_plan("up", await gangs(rig, "gang"), checkpoint={"timeoutSeconds": 30, "retrySeconds": 7200})
    noes: dict[int, int] = {}

    def twice(pod: Object, request: int, step: int) -> Object:
        noes.setdefault(request, len(noes))
        if noes[request] < 2:
            return honest(pod, request, 0, parked=False, refused="evaluating", retryAfterSeconds=300)
        return honest(pod, request, step)

    rig.fleet.trainers["gang"].answers = twice
    await rig.run_until(lambda: [one.reason for one in rig.plan_now("up").status.blockers] == ["GangRefuses"])
    first = rig.plan_now("up").status.blockers[0].message
    assert first.startswith("default/Job/gang has refused once; the last reason: gang-0")
    assert "refuses: evaluating. The request is repeated after 2026-11-21" in first
    since = rig.cluster.clock.now()
    await rig.run_until(lambda: len(rig.requests()) == 2, 2000)
    assert timedelta(seconds=280) < rig.cluster.clock.now() - since < timedelta(seconds=400)
    await rig.run_until(lambda: "has refused 2 times" in str(rig.plan_now("up").status.blockers), 2000)
    assert rig.fleet.trainers["gang"].stops == 0
    await rig.run_until(lambda: rig.is_over("up"), 3000)
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert rig.fleet.trainers["gang"].lost == 0


async def test_a_refusal_over_http_says_when_by_its_header(rig: Rig) -> None:
    rig.apply_plan("up", await gangs(rig, "gang", **WAYS["http"]), checkpoint=QUICK)
    rig.cluster.server = lambda *_: Reply(status=409, body=b'{"refused": "evaluating"}', retry_after_seconds=600)
    await rig.run_until(lambda: reasons(rig) == [(RequestPhase.WITHDRAWN, "Refused")])
    status = rig.requests()[0].status
    assert (status.message.split(": ", 1)[1], status.retry_after_seconds) == ("evaluating", 600)
    assert marked(rig) == {}


# ---- deadlines


async def test_nodes_of_a_job_that_says_so_are_left_out_when_it_does_not_answer(rig: Rig) -> None:
    rig.apply_plan("up", await gangs(rig, "gang", on_deadline="skip-node"), checkpoint={"timeoutSeconds": 30})
    rig.fleet.trainers["gang"].answers = lambda *_: None
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers), 3000, stride=5)
    assert [one.reason for one in rig.plan_now("up").status.blockers] == ["NodesLeftOut"], rig.describe_state()
    await _pass(rig, 3600)
    assert len(rig.requests()) == 1
    assert rig.fleet.trainers["gang"].stops == 0


@pytest.mark.parametrize("declared", ["terminate", "wait"])
async def test_only_the_approval_makes_a_gang_expendable(rig: Rig, declared: str) -> None:
    rig.apply_plan("up", await gangs(rig, "gang", on_deadline=declared), checkpoint=QUICK)
    rig.fleet.trainers["gang"].answers = lambda *_: None
    await rig.run_until(lambda: [one for one, _ in reasons(rig)] == [RequestPhase.WITHDRAWN], 2000, stride=20)
    assert rig.fleet.trainers["gang"].stops == 0


def expendable(*jobs: str) -> Object:
    limits = {"maxInterruptions": 9, "expendable": [f"default/Job/{job}" for job in jobs]}
    return {"by": "test", "at": "2026-11-21T09:00:00Z", "limits": limits}


async def test_a_gang_that_the_approval_names_is_stopped_although_it_says_nothing(rig: Rig) -> None:
    revision = await gangs(rig, "gang", on_deadline="terminate")
    rig.apply_plan("up", revision, checkpoint=QUICK, approval=expendable("gang"))
    rig.fleet.trainers["gang"].answers = lambda *_: None
    await rig.run_until(lambda: rig.fleet.trainers["gang"].stops > 0, 300)
    status = rig.requests()[0].status
    assert (status.reason, status.terminated, status.acknowledged_step) == ("Expendable", True, None)
    rig.fleet.trainers["gang"].answers = None
    await rig.run_until(lambda: rig.is_over("up"))
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.RESTORED], rig.describe_state()
    told = [one.message for one in rig.cluster.events if one.reason == "StoppedForUpgrade"]
    assert told == ["stopped for plan up without an acknowledgement, as its approval allows"]
    rig.assert_nothing_left()


async def test_a_gang_that_says_how_it_is_asked_is_asked_although_it_is_expendable(rig: Rig) -> None:
    revision = await gangs(rig, "gang")
    rig.apply_plan("up", revision, approval=expendable("gang"))
    await rig.run_until(lambda: rig.is_over("up"))
    assert [(one.status.terminated, one.status.phase) for one in rig.requests()] == [(False, RequestPhase.RESTORED)]
    assert rig.fleet.trainers["gang"].lost == 0


async def test_a_gang_that_cannot_be_asked_is_stopped_only_if_the_approval_names_it(rig: Rig) -> None:
    revision = await gangs(rig, "gang", checkpoint_method="none")
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: [one.reason for one in rig.plan_now("up").status.blockers] == ["GangCannotCheckpoint"])
    change = {"spec": {"approval": expendable("gang")}}
    rig.cluster.store.change(UPGRADE_PLANS, "up", change)
    await rig.run_until(lambda: rig.is_over("up"))
    assert [(one.spec.method, one.status.phase) for one in rig.requests()] == [("none", RequestPhase.RESTORED)]
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    rig.assert_nothing_left()


# ---- lanes


def slowly(seconds: int, rig: Rig):
    """A checkpoint takes so long, from the moment that the member was asked."""
    asked: dict[tuple[str, int], float] = {}

    def answer(pod: Object, request: int, step: int) -> Object | None:
        now = rig.cluster.clock.now().timestamp()
        since = asked.setdefault((pod["metadata"]["uid"], request), now)
        return honest(pod, request, step) if now >= since + seconds else None

    return answer


async def test_gangs_of_one_lane_write_their_checkpoints_one_after_the_other(rig: Rig) -> None:
    revision = await gangs(rig, "one", "two", "three", checkpoint_lane="fast", members=2)
    rig.apply_plan("up", revision, checkpoint={"timeoutSeconds": 60, "lanes": {"maxConcurrent": 1}})
    for name in ("one", "two", "three"):
        rig.fleet.trainers[name].answers = slowly(20, rig)
    most, waited = 0, set()
    while not rig.is_over("up"):
        await rig.run_second()
        writing = [
            one for one in rig.requests() if one.status.phase is RequestPhase.REQUESTED and one.status.admitted_at
        ]
        asked = {name.rsplit("-", 2)[0] for name in marked(rig)}
        assert {one.spec.owner.name for one in writing} <= {"one", "two", "three"}
        most = max(most, len(writing))
        waited |= {one.spec.owner.name for one in rig.requests() if one.status.reason == "WaitingForLane"}
        unmarked = {one.spec.owner.name for one in rig.requests() if one.status.reason == "WaitingForLane"}
        assert not asked & unmarked
    assert (most, len(waited)) == (1, 2)
    assert len({(one.spec.asked_at, one.spec.park_seconds) for one in rig.requests()}) == 1, "one end for all"
    assert rig.requests()[0].spec.park_seconds == 3 * 60 + 300
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.RESTORED] * 3, rig.describe_state()
    assert all(rig.fleet.trainers[name].lost == 0 for name in ("one", "two", "three"))


async def test_gangs_that_declare_no_lane_share_that_of_their_storageclass(rig: Rig) -> None:
    """Two claims of one class; the third gang, whose claim is of another, waits for nobody."""
    revision = await gangs(rig, "one", "two", "three")
    for name, kind in (("one", "nfs-slow"), ("two", "nfs-slow"), ("three", "nvme")):
        meta = {"name": f"data-{name}", "namespace": "default"}
        rig.cluster.store.put(CLAIMS, {"metadata": meta, "spec": {"storageClassName": kind}})
        for pod in [one for one in rig.cluster.store.copy_all(PODS) if one["metadata"]["name"].startswith(f"{name}-")]:
            mine = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}
            volumes = [mine if one["name"] == "data" else one for one in pod["spec"]["volumes"]]
            rig.cluster.store.change(PODS, pod["metadata"]["name"], {"spec": {"volumes": volumes}}, "default")
    rig.apply_plan("up", revision, checkpoint={"timeoutSeconds": 60, "lanes": {"maxConcurrent": 1}})
    for name in ("one", "two", "three"):
        rig.fleet.trainers[name].answers = slowly(20, rig)
    await rig.run_until(lambda: len(rig.requests()) == 3)
    lanes = {one.spec.owner.name: one.spec.lane for one in rig.requests()}
    assert lanes == {"one": "nfs-slow", "two": "nfs-slow", "three": "nvme"}
    await rig.run_until(lambda: any(one.status.reason == "WaitingForLane" for one in rig.requests()))
    waiting = {one.spec.owner.name for one in rig.requests() if one.status.reason == "WaitingForLane"}
    assert len(waiting) == 1
    assert waiting < {"one", "two"}


async def test_an_acknowledgement_that_expires_while_another_waits_for_its_lane_is_asked_anew(rig: Rig) -> None:
    """The silent one holds the lane for as long as its checkpoint may take, the other waits; the parked one expires."""
    revision = await gangs(rig, "one", "two", checkpoint_lane="fast")
    rig.apply_plan(
        "up", revision, checkpoint={"timeoutSeconds": 400, "retrySeconds": 60, "lanes": {"maxConcurrent": 1}}
    )
    silent = {"for": 1}

    def sometimes(pod: Object, request: int, step: int) -> Object | None:
        return None if silent["for"] else honest(pod, request, step)

    rig.fleet.trainers["two"].answers = sometimes
    await rig.run_until(lambda: any(one.status.phase is RequestPhase.EXPIRED for one in rig.requests()), 3000)
    silent["for"] = 0
    await rig.run_until(lambda: rig.is_over("up"), 6000, stride=2)
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert rig.fleet.trainers["one"].lost == rig.fleet.trainers["two"].lost == 0
    rig.assert_nothing_left()


async def test_a_job_that_ends_between_the_asking_and_the_stop_costs_nothing(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig))
    await rig.run_until(lambda: reasons(rig)[:1] == [(RequestPhase.PARKED, "Acknowledged")])
    for pod in list(rig.cluster.store.copy_all(PODS)):
        if pod["metadata"]["name"].startswith("gang"):
            rig.cluster.store.change(PODS, pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, "default")
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert reasons(rig) == [(RequestPhase.ENDED, "Finished")]
    assert rig.fleet.trainers["gang"].stops == 0
    rig.assert_nothing_left()
