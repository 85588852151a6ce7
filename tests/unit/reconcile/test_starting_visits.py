"""A visit Job is made suspended and started by a second write: one that arrives too late does nothing."""

from typing import Any

import pytest

from tests.support.rig import Rig, running
from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PODS
from upgrader.core.errors import UnreachableError
from upgrader.core.phases import NodePhase, PlanPhase
from upgrader.simulate.apiserver.cluster import Write


@pytest.fixture
def rig() -> Rig:
    return Rig()


def phases(rig: Rig) -> list[NodePhase]:
    return [visit.status.phase for visit in rig.visits("up")]


def visit_jobs(rig: Rig) -> list[dict[str, Any]]:
    return [job for job in rig.cluster.store.seen(JOBS) if job["metadata"]["name"].startswith("visit-")]


def visit_pods(rig: Rig) -> list[dict[str, Any]]:
    return [
        pod
        for pod in rig.cluster.store.seen(PODS)
        if pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "visit"
    ]


async def test_one_that_arrives_when_its_node_is_another_one_does_nothing_there(rig: Rig) -> None:
    revision = await running(rig, nodes=1, members=1)
    before, late = rig.cluster.create, []
    made = {pod["metadata"]["name"] for pod in visit_pods(rig)}

    async def delayed(kind: Any, body: Any) -> Any:
        if kind == JOBS and body["metadata"]["name"].startswith("visit-"):
            late.append(body)
            raise UnreachableError("no answer")
        return await before(kind, body)

    rig.cluster.create = delayed  # type: ignore[method-assign]
    rig.plan("up", revision)
    await rig.until(lambda: bool(late))
    rig.cluster.store.remove(NODES, "gpu-0")
    await rig.until(lambda: phases(rig) == [NodePhase.GONE])
    await before(JOBS, late[0])
    rig.fleet.node("gpu-0")
    for _ in range(60):
        await rig.second()
    assert {pod["metadata"]["name"] for pod in visit_pods(rig)} <= made
    assert [job["spec"]["suspend"] for job in visit_jobs(rig) if job["metadata"]["name"] == late[0]["metadata"]["name"]]


async def test_one_that_was_made_and_not_started_goes_with_its_node(rig: Rig) -> None:
    revision = await running(rig, nodes=1, members=1)
    started: list[str] = []

    def lose(write: Write) -> None:
        if write.kind == JOBS.kind and write.verb == "edit" and write.name.startswith("visit-"):
            started.append(write.name)
            raise UnreachableError("no answer")

    rig.cluster.before_write = lose
    rig.plan("up", revision)
    await rig.until(lambda: bool(started))
    rig.cluster.store.remove(NODES, "gpu-0")
    await rig.until(lambda: phases(rig) == [NodePhase.GONE])
    assert [job["metadata"]["name"] for job in visit_jobs(rig) if job["metadata"]["name"] in started] == []


async def test_one_that_was_made_and_not_started_is_started_by_the_next_look(rig: Rig) -> None:
    revision = await running(rig, nodes=1, members=1)
    refused: list[str] = []

    def refuse(write: Write) -> None:
        if write.kind == JOBS.kind and write.verb == "edit" and write.name.startswith("visit-") and not refused:
            refused.append(write.name)
            raise UnreachableError("no answer")

    rig.cluster.before_write = refuse
    rig.plan("up", revision)
    await rig.until(lambda: bool(refused))
    rig.restart()
    await rig.until(lambda: rig.over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED
    assert [one.verb for one in rig.cluster.writes if one.name == refused[0]][:2] == ["create", "edit"]
    rig.assert_nothing_left()
