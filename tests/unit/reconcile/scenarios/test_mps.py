"""GPUs that are shared by NVIDIA's MPS, in virtual time: the plugin is played, its configuration file is read."""

import pytest

from tests.support.pools import on_nvidia
from upgrader.api import names
from upgrader.api.resources import GPU_STACKS, PODS
from upgrader.core.model import sharing
from upgrader.core.model.phases import NodePhase, PlanPhase, is_final
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.cluster.fleet import RESOURCE
from upgrader_dev.simulated.cluster.rig import Rig

DAEMON = "mps-control-daemon"


@pytest.fixture
async def rig() -> Rig:
    """Two nodes on NVIDIA's driver, whose GPUs are not shared."""
    rig = Rig()
    await on_nvidia(rig, spec(rig), "gpu-0", "gpu-1")
    return rig


def spec(rig: Rig, **shares: object) -> dict:
    found = rig.make_spec("535.1") | {"driver": {"vendor": "nvidia", "version": "535.1", "unverified": "Allow"}}
    return found | {"devicePlugin": found["devicePlugin"] | {"sharing": shares}}


def shared(rig: Rig, replicas: int) -> dict:
    return spec(rig, mps={"replicas": replicas, "runtimeClass": "nvidia"})


def offered(rig: Rig) -> set[str]:
    return {one["status"]["allocatable"][RESOURCE] for one in rig.nodes()}


def daemons(rig: Rig) -> list[bool]:
    """Of each plugin's pod, whether MPS's control daemon is in it."""
    pods = [
        one
        for one in rig.cluster.store.copy_all(PODS)
        if one["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "device-plugin"
    ]
    return [DAEMON in [container["name"] for container in one["spec"]["initContainers"]] for one in pods]


async def test_mps_comes_and_goes_by_upgrades_that_know_what_a_node_should_offer_then(rig: Rig) -> None:
    assert (offered(rig), daemons(rig)) == ({"8"}, [False, False])
    seen = []
    for plan, wanted in (("shared", shared(rig, 4)), ("fewer", shared(rig, 3)), ("alone", spec(rig))):
        rig.apply_plan(plan, rig.apply_stack(wanted))
        await rig.run_until(lambda plan=plan: rig.is_over(plan))
        assert rig.plan_now(plan).status.phase is PlanPhase.COMPLETED, rig.describe_state()
        seen.append((offered(rig), daemons(rig)))
    assert seen == [({"32"}, [True, True]), ({"24"}, [True, True]), ({"8"}, [False, False])]
    rig.assert_nothing_left()


async def test_a_stack_that_asks_for_mps_drifts_and_changes_nothing_by_itself(rig: Rig) -> None:
    rig.apply_stack(shared(rig, 4))
    await rig.run_until(lambda: rig.stack_now().status.drifted == 2)
    reasons = {one.reason for one in rig.stack_now().status.drift}
    assert reasons == {"DevicePlugin"}
    assert (offered(rig), daemons(rig)) == ({"8"}, [False, False])


async def test_a_node_upgrade_that_fails_goes_back_to_gpus_that_are_not_shared(rig: Rig) -> None:
    revision = rig.apply_stack(shared(rig, 4))
    refused = []

    def refuse(which: str, pod: dict) -> OrderResult | None:
        if which != "validate" or not any(daemons(rig)):
            return None
        refused.append(pod["spec"]["nodeName"])
        return OrderResult(reason=Reason.DEVICE_FAILED, message="no client gets through")

    rig.fleet.pod_results = refuse
    rig.apply_plan("p", revision)
    await rig.run_until(
        lambda: len(rig.upgrades("p")) == 2 and all(is_final(one.status.phase) for one in rig.upgrades("p"))
    )
    assert set(refused) == {"gpu-0", "gpu-1"}
    assert {(one.status.phase, one.status.reverting) for one in rig.upgrades("p")} == {(NodePhase.FAILED, True)}
    assert (offered(rig), daemons(rig)) == ({"8"}, [False, False])


async def test_what_does_not_go_with_mps_is_said_by_the_stack_too(rig: Rig) -> None:
    """As where the definitions of before are still installed, which have no rule that refuses it."""
    asked = spec(rig, mps={"replicas": 2}, timeSlices=2)
    rig.cluster.store.put(GPU_STACKS, {"metadata": {"name": "pool-a"}, "spec": asked})
    said = f"spec.devicePlugin: {sharing.BOTH}"
    await rig.run_until(lambda: any(said in one.message for one in rig.stack_now().status.conditions))
    assert (offered(rig), daemons(rig)) == ({"8"}, [False, False])
