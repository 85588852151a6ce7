"""Members that do not hear their request: once is an accident, twice in a row rules the way out; in virtual time."""

import pytest

from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import JOBS, PODS
from upgrader.core.model.phases import PlanPhase, RequestPhase
from upgrader.core.replies import Reply
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.pod_programs import PodPrograms
from upgrader_dev.simulated.cluster.rig import Rig, start_training

GROUP = "gpu-upgrader.io"


class Proxy:
    """The API server's proxy before the fleet's servers: for one member it has no answer, so many times."""

    def __init__(self, rig: Rig, *, times: int, arrives: bool = False) -> None:
        self.rig, self.left, self.arrives = rig, times, arrives
        self.member = ""
        self.parked: set[str] = set()
        self.posted: list[str] = []
        pod_programs: PodPrograms = rig.pod_programs
        self._inner = pod_programs.handle_request
        rig.cluster.server = self.server

    def server(self, pod: Pod, method: str, endpoint: str, body: object) -> Reply | None:
        name = pod.metadata.name
        lost = False
        if method == "POST":
            self.member = self.member or name
            self.posted.append(name)
            lost = name == self.member and self.left > 0
            self.left -= lost
            if not lost or self.arrives:
                self.parked.add(name)
        if method == "DELETE":
            self.parked.discard(name)
        return None if lost else self._inner(pod, method, endpoint, body)


async def asked_by(rig: Rig, methods: str, **plan: object) -> None:
    revision = await start_training(rig)
    said = {f"{GROUP}/checkpoint-method": methods, f"{GROUP}/checkpoint-endpoint": ":8080/checkpoint"}
    rig.cluster.store.change(JOBS, "gang", {"spec": {"template": {"metadata": {"annotations": said}}}}, "default")
    for pod in rig.cluster.store.copy_all(PODS):
        if pod["metadata"].get("labels", {}).get("job") == "gang":
            rig.cluster.store.change(PODS, pod["metadata"]["name"], {"metadata": {"annotations": said}}, "default")
    rig.fleet.trainers["gang"].answers = _marked_members_only
    rig.apply_plan("up", revision, **plan)


def _marked_members_only(pod: Object, request: int, step: int) -> Object | None:
    if pod["metadata"]["annotations"].get(names.ANNOTATION_REQUEST) != str(request):
        return None
    return {"requestId": request, "podUid": pod["metadata"]["uid"], "step": step, "uri": "/data/x", "parked": True}


def marked(rig: Rig) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in rig.cluster.store.copy_all(PODS)
        if names.ANNOTATION_REQUEST in pod["metadata"].get("annotations", {})
    }


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_one_miss_is_an_accident_and_the_member_is_asked_again_the_same_way(rig: Rig) -> None:
    await asked_by(rig, "http,file")
    proxy = Proxy(rig, times=1)
    await rig.run_until(lambda: bool(rig.requests()) and rig.requests()[0].status.reason == "Unheard")
    (request,) = rig.requests()
    (miss,) = request.status.missed
    uid = next(member.uid for member in request.spec.members if member.pod == proxy.member)
    assert (miss.pod_uid, miss.method, miss.request_id, miss.times) == (uid, "http", request.spec.request_id, 1)
    assert miss.message == f"no program listens at :8080/checkpoint of pod {proxy.member}"
    assert marked(rig) == proxy.parked, "who heard it is known"
    first = rig.cluster.clock.now()
    await rig.run_until(lambda: rig.requests()[0].status.phase is RequestPhase.PARKED)
    assert (rig.cluster.clock.now() - first).total_seconds() >= 5, "not asked again in the same breath"
    assert proxy.posted.count(proxy.member) == 2
    assert rig.requests()[0].status.missed == []
    await rig.run_until(lambda: rig.is_over("up"))
    assert [(one.spec.method, one.status.phase) for one in rig.requests()] == [("http", RequestPhase.RESTORED)]
    assert rig.fleet.trainers["gang"].lost == 0


@pytest.mark.parametrize("arrives", [False, True], ids=["it never arrives", "only its answer is lost"])
async def test_after_two_misses_all_are_released_before_the_next_method(rig: Rig, *, arrives: bool) -> None:
    await asked_by(rig, "http,file")
    proxy = Proxy(rig, times=99, arrives=arrives)
    await rig.run_until(lambda: bool(rig.requests()) and rig.requests()[0].status.reason == "Unheard")
    assert len(proxy.parked) == (2 if arrives else 1)
    rig.restart()
    await rig.run_until(lambda: rig.requests()[0].spec.method == "file", 20)
    assert proxy.parked == set(), "everybody trains on"
    assert proxy.posted.count(proxy.member) == 2
    (request,) = rig.requests()
    assert (request.spec.fallbacks, request.status.missed) == ([], [])
    assert (request.status.reason, request.status.message) == (
        "NextMethod",
        (
            f"no program listens at :8080/checkpoint of pod {proxy.member}; the request to all members is repeated "
            "by file "
            "instead"
        ),
    )
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_where_no_other_method_is_declared_all_are_released_at_once_and_it_is_said(rig: Rig) -> None:
    await asked_by(rig, "http", checkpoint={"timeoutSeconds": 1800, "retrySeconds": 86400})
    proxy = Proxy(rig, times=99)
    await rig.run_until(lambda: bool(rig.requests()))
    asked = rig.cluster.clock.now()
    await rig.run_until(lambda: rig.requests()[0].status.phase is RequestPhase.WITHDRAWN)
    assert (rig.cluster.clock.now() - asked).total_seconds() < 20, "not after park-seconds"
    assert rig.requests()[0].status.reason == "Unaskable"
    assert "no checkpoint method reaches the gang (no program listens at" in rig.requests()[0].status.message
    assert (proxy.parked, marked(rig)) == (set(), set())
    assert rig.fleet.trainers["gang"].stops == 0


async def test_an_expendable_gang_that_cannot_be_asked_is_not_asked_for_longer(rig: Rig) -> None:
    limits = {"maxInterruptions": 9, "expendable": ["default/Job/gang"]}
    approval: Object = {"by": "test", "at": "2026-11-21T09:00:00Z", "limits": limits}
    await asked_by(rig, "http", approval=approval)
    Proxy(rig, times=99)
    await rig.run_until(lambda: bool(rig.requests()) and rig.requests()[0].status.terminated, 120)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
