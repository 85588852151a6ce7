"""Settings of the kubelet in virtual time: changed by a plan only, on nodes that were emptied, and taken back."""

import msgspec
import pytest

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import PODS
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.cluster.rig import Rig

STATIC = {"cpuManagerPolicy": "static", "reservedCpus": "0-3", "topologyManagerPolicy": "restricted"}
VALUES = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-3", "topologyManagerPolicy": "restricted"}


@pytest.fixture
async def rig() -> Rig:
    """Two nodes on driver 1.0 with a gang over both."""
    rig = Rig()
    await pool(rig, nodes=2, images=("1.0", "2.0"))
    rig.fleet.add_job("gang", members=2, gpus=8)
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 10)
    return rig


def settled(rig: Rig, **settings: str) -> dict:
    """The spec of a stack that does not manage the kubelet's version."""
    return rig.make_spec("1.0") | {"kubelet": {"settings": settings}}


def drift(rig: Rig) -> dict[str, int]:
    return {one.reason: one.nodes for one in rig.stack_now().status.drift}


async def test_settings_wait_for_a_plan_and_are_changed_in_one_upgrade_after_one_acknowledgement(rig: Rig) -> None:
    rig.fleet.add_replica("web", node="gpu-0", gpus=0)
    revision = rig.apply_stack(settled(rig, **STATIC))
    await rig.run_until(lambda: drift(rig) == {"KubeletSettings": 2})
    assert (rig.upgrades("up"), rig.fleet.trainers["gang"].stops) == ([], 0)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert (rig.nodes_on(revision), rig.fleet.trainers["gang"].stops, rig.fleet.trainers["gang"].lost) == (2, 2, 0)
    states = [(one.spec.source.kubelet_settings, one.spec.target.kubelet_settings) for one in rig.upgrades("up")]
    assert states == [({}, VALUES)] * 2
    assert "web" not in {
        pod["metadata"]["name"] for pod in rig.cluster.store.copy_all(PODS)
    }  # its CPUs may be another's
    assert drift(rig) == {}
    rig.assert_nothing_left()


async def test_a_pod_without_gpus_that_nobody_makes_again_holds_its_node_before_anybody_is_asked(rig: Rig) -> None:
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=0)
    rig.apply_plan("up", rig.apply_stack(settled(rig, **STATIC)))
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers))
    said = " ".join(blocker.message for blocker in rig.plan_now("up").status.blockers)
    assert "It has no GPUs, but a change of the kubelet's settings of gpu-0 would end solo" in said
    assert (rig.requests(), rig.upgrades("up")) == ([], [])
    rig.cluster.store.remove(PODS, "solo", "default")
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()


async def test_the_node_says_which_settings_it_has_until_they_are_taken_back(rig: Rig) -> None:
    rig.apply_plan("up", rig.apply_stack(settled(rig, **STATIC)))
    await rig.run_until(lambda: rig.is_over("up"))
    said = {one["metadata"]["annotations"][names.ANNOTATION_KUBELET] for one in rig.nodes()}
    assert [msgspec.json.decode(one) for one in said] == [VALUES]
    rig.apply_plan("off", rig.apply_stack(rig.make_spec("1.0")))
    await rig.run_until(lambda: rig.is_over("off"))
    assert rig.plan_now("off").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert not any(names.ANNOTATION_KUBELET in one["metadata"].get("annotations", {}) for one in rig.nodes())
    assert {str(one.spec.source.kubelet_settings) for one in rig.upgrades("off")} == {str(VALUES)}


async def test_a_later_upgrade_that_leaves_them_as_they_are_evicts_nobody(rig: Rig) -> None:
    rig.apply_plan("up", rig.apply_stack(settled(rig, **STATIC)))
    await rig.run_until(lambda: rig.is_over("up"))
    rig.fleet.add_replica("web", node="gpu-0", gpus=0)
    spec = settled(rig, **STATIC)
    rig.apply_plan("on", rig.apply_stack(spec | {"driver": {"vendor": "sim", "version": "2.0", "unverified": "Allow"}}))
    await rig.run_until(lambda: rig.is_over("on"))
    assert rig.plan_now("on").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert "web" in {pod["metadata"]["name"] for pod in rig.cluster.store.copy_all(PODS)}


async def test_a_kubelet_that_does_not_start_with_them_sends_its_node_back(rig: Rig) -> None:
    said = "settings of the kubelet: no kubelet runs. The previous settings were restored; the kubelet runs"
    rig.fleet.pod_results = lambda component, pod: (
        OrderResult(reason=Reason.KUBELET_RESTORED, message=said)
        if component == "upgrade" and pod["metadata"]["name"].startswith("upgrade-gpu-1")
        else None
    )
    before = rig.stack_now().status.current_revision
    rig.apply_plan("up", rig.apply_stack(settled(rig, **STATIC)))
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == ["Restored"])
    assert {one.status.phase for one in rig.upgrades("up")} == {NodePhase.FAILED}
    assert any(said in step.result for one in rig.upgrades("up") for step in one.status.steps)
    assert (rig.nodes_on(before or "?"), rig.fleet.trainers["gang"].lost) == (2, 0)
    rig.assert_nothing_left()
