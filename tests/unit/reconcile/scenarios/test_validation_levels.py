"""Levels of validation in virtual time: canaries deeper than the others, a stack without programs, a rollback."""

from typing import Any

import pytest

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import PODS
from upgrader.core.model.phases import PlanPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig

NCCL, DCGM = "registry/nccl-tests:1", "registry/dcgm:4"
PROGRAMS = {"allReduce": {"image": NCCL}, "diagnostics": {"image": DCGM}}


@pytest.fixture
async def rig() -> Rig:
    """Three nodes on driver 1.0."""
    made = Rig()
    await pool(made, nodes=3, images=("1.0", "2.0"))
    for image, digest in ((NCCL, "dd"), (DCGM, "ee")):
        made.registry.push(image, digest)
    return made


def stack_with(rig: Rig, version: str, programs: dict[str, Any]) -> str:
    return rig.apply_stack(rig.make_spec(version) | {"validation": programs})


def init_containers(rig: Rig, component: str) -> dict[str, list[str]]:
    """By node, the init containers of the pods that upgrades of the plan have now."""
    upgrades = {upgrade.metadata.name for upgrade in rig.upgrades("up")}
    return {
        pod["spec"]["nodeName"]: [container["name"] for container in pod["spec"].get("initContainers", [])]
        for pod in rig.cluster.store.copy_all(PODS)
        if pod["metadata"]["labels"].get(names.LABEL_COMPONENT) == component
        and pod["metadata"]["annotations"].get(names.ANNOTATION_NODE_UPGRADE) in upgrades
    }


async def test_canaries_are_validated_deeper_and_images_are_pulled_before(rig: Rig) -> None:
    revision = stack_with(rig, "2.0", PROGRAMS)
    canary = {"enabled": True, "soakSeconds": 60, "validation": "Diagnostics"}
    rig.apply_plan("up", revision, strategy={"canary": canary, "validation": "AllReduce"})
    validated, prepared = dict[str, list[str]](), dict[str, list[str]]()

    def is_over() -> bool:
        validated.update(init_containers(rig, "validate"))
        prepared.update(init_containers(rig, "prepare"))
        return rig.is_over("up")

    await rig.run_until(is_over)
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    levels = {upgrade.spec.node.name: upgrade.spec.validation.value for upgrade in rig.upgrades("up")}
    assert sorted(levels.values()) == ["AllReduce", "AllReduce", "Diagnostics"]
    programs = {"AllReduce": ["all-reduce"], "Diagnostics": ["all-reduce", "diagnostics"]}
    for node, level in levels.items():
        assert validated[node] == ["driver", "tools", *programs[level], "programs"]
        assert prepared[node][-len(programs[level]) - 1 :] == ["tools", *programs[level]]
    rig.assert_nothing_left()


async def test_a_level_without_its_program_blocks_the_plan_in_words(rig: Rig) -> None:
    rig.apply_plan("up", stack_with(rig, "2.0", {}), strategy={"validation": "AllReduce"})
    missing = "spec.strategy.validation AllReduce requires spec.validation.allReduce of stack pool-a"
    await rig.run_until(lambda: missing in rig.plan_now("up").status.message)
    assert rig.upgrades("up") == []


async def test_a_program_that_is_in_no_registry_is_named_before_anything_is_planned(rig: Rig) -> None:
    stack_with(rig, "2.0", {"allReduce": {"image": "registry/none:1"}})
    message = "registry/none:1 is not in its registry; push it, or correct spec.validation.allReduce.image"
    await rig.run_until(lambda: any(found.message == message for found in rig.stack_now().status.conditions))


async def test_a_rollback_needs_no_program_that_the_revision_before_did_not_have(rig: Rig) -> None:
    def fail_programs(component: str, pod: Object) -> OrderResult | None:
        has_programs = any(each["name"] == "programs" for each in pod["spec"].get("initContainers", []))
        if component != "validate" or not has_programs:
            return None
        return OrderResult(reason=Reason.DEVICE_FAILED, message="all-reduce: 3 values are wrong")

    rig.fleet.pod_results = fail_programs
    revision = stack_with(rig, "2.0", PROGRAMS)
    rig.apply_plan("up", revision, strategy={"validation": "AllReduce", "onFailure": "Rollback"})
    await rig.run_until(lambda: rig.is_over("up"))
    await rig.run_until(lambda: rig.nodes_on(revision) == 0)
    assert {upgrade.status.phase.value for upgrade in rig.upgrades("up")} == {"Failed"}
    rig.assert_nothing_left()
