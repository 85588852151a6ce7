"""Law: a node that reboots again while it is brought back comes into service, in whatever order that is seen."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tests.support.drifting import KERNEL
from tests.support.examples import examples
from tests.support.rebooting import NODE, THIRD, Reboot, Twice

LATEST = 60
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
        await rig.second()
    rig.machines.reboot(NODE, reboot)
    await rig.comes_to_rest(seconds=300)
