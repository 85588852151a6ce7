"""Law: a node that reboots while it is repaired, or upgraded by a plan, is in service soon, however that is seen."""

import asyncio

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.drifting import KERNEL
from tests.support.examples import examples
from tests.support.rebooting import NODE, THIRD, Reboot, Twice
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.api.v1alpha1 import UpgradePlan
from upgrader.core.model.phases import PlanPhase, is_final

LATEST = 60
GOING = frozenset({PlanPhase.PROPOSED, PlanPhase.RUNNING, PlanPhase.ABORTING})
SECONDS = st.integers(0, LATEST)
REBOOTS = st.builds(
    Reboot,
    kernel=st.sampled_from([KERNEL, THIRD]),
    boot=st.just("boot-3"),
    away=st.integers(0, 30),
    ready=SECONDS,
    info=SECONDS,
    label=SECONDS,
    reruns=st.booleans(),
)


@examples(25)
@given(after=st.integers(0, 45), reboot=REBOOTS)
def test_whenever_it_reboots_and_however_that_is_seen_it_is_soon_in_service(after: int, reboot: Reboot) -> None:
    asyncio.run(_rebooted_twice(after, reboot))


async def _rebooted_twice(after: int, reboot: Reboot) -> None:
    rig = Twice()
    await rig.begin()
    for _ in range(after):
        await rig.run_second()
    rig.machines.reboot(NODE, reboot)
    await rig.comes_to_rest(seconds=300)


@examples(25)
@given(after=st.integers(0, 45), reboot=REBOOTS)
@example(after=0, reboot=Reboot(kernel=KERNEL, boot="boot-3", away=0, ready=0, info=25, label=0))
def test_whenever_it_reboots_in_a_plan_it_serves_again_soon_and_no_step_is_lost(after: int, reboot: Reboot) -> None:
    asyncio.run(_rebooted_in_a_plan(after, reboot))


async def _rebooted_in_a_plan(after: int, reboot: Reboot) -> None:
    rig = Twice()
    await rig.train()
    rig.newer(KERNEL, THIRD)
    for _ in range(after):
        await rig.run_second()
    rig.machines.reboot(NODE, reboot)
    for _ in range(max(reboot.away, reboot.ready, reboot.info, reboot.label) + 1):
        await rig.run_second()
    gang = rig.fleet.trainers["gang"]

    def rests() -> bool:
        """Also the plan has ended or paused: between two batches every upgrade is final, and the next one follows."""
        upgrades = [*rig.upgrades(), *rig.upgrades("newer")]
        runs = any(plan.status.phase in GOING for plan in rig.list_objects(UPGRADE_PLANS, UpgradePlan))
        return rig.serves(NODE) and not runs and all(is_final(upgrade.status.phase) for upgrade in upgrades)

    await rig.run_until(rests, 300)
    step = gang.step
    await rig.run_until(lambda: gang.step > step + 3, 120)
    assert gang.lost == 0
    rig.assert_nothing_left()
