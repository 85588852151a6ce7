"""Images that are asked for before any node runs their kernel."""

import pytest

from tests.support.drifting import KERNEL, NEXT, built, images_of, on_recipes_driver, reboots
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, UPGRADE_PLANS
from upgrader.cli.images.announcement import announce_images
from upgrader.core.driver_build.driver_builds import Identity
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.phases import NodePhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.reconcile.observe.image_uses import read_uses
from upgrader_dev.simulated.cluster.rig import Rig

pytestmark = pytest.mark.asyncio


def identity(kernel: str = NEXT, **changes: str) -> Identity:
    facts = {"vendor": "sim", "recipe": "sim", "driver": "1.0", "kernel": kernel, "os": "bookworm"}
    return Identity(**{**facts, **changes})


@pytest.fixture
async def rig() -> Rig:
    return await on_recipes_driver()


async def test_what_the_matrix_has_for_a_newer_kernel_is_asked_for_once(rig: Rig) -> None:
    wanted = [
        identity(),
        identity(KERNEL),
        identity("6.1.0-40-amd64"),
        identity(driver="9.9"),
        identity("6.1.0-50-rt-amd64"),
    ]
    assert await announce_images(rig.context, wanted, None) == [f"sim 1.0 for {NEXT} is requested"]
    (made,) = [one for one in rig.cluster.store.copy_all(DRIVER_IMAGES) if one["spec"]["kernel"] == NEXT]
    assert made["metadata"]["labels"] == {names.LABEL_COMPONENT: "announced"}
    assert made["spec"] == {
        "vendor": "sim",
        "version": "1.0",
        "kernel": NEXT,
        "recipe": "sim",
        "arch": "amd64",
        "os": "bookworm",
    }
    before = len(rig.cluster.writes)
    assert await announce_images(rig.context, wanted, "pool-a") == [
        "no changes: 1 image(s) for kernels that no node runs yet are already requested"
    ]
    assert rig.cluster.writes[before:] == []
    assert NEXT in (await read_uses(rig.cluster)).pending  # a sweep of images keeps it


async def test_the_driver_that_the_stack_is_to_get_is_asked_for_too(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("2.0"))
    await rig.run_second()
    lines = await announce_images(rig.context, [identity(), identity(driver="2.0")], None)
    assert lines == [f"sim 1.0 for {NEXT} is requested", f"sim 2.0 for {NEXT} is requested"]


async def test_what_is_wanted_no_more_goes_unless_a_node_needs_it(rig: Rig) -> None:
    await announce_images(rig.context, [identity(), identity("6.1.0-51-amd64")], None)
    reboots(rig, "gpu-0", boot="boot-2", kernel="6.1.0-51-amd64")
    assert await announce_images(rig.context, [], None) == [f"sim 1.0 for {NEXT} is no longer requested"]
    assert (images_of(rig, NEXT), len(images_of(rig, "6.1.0-51-amd64"))) == ([], 1)


async def test_for_one_stack_nothing_of_others_is_taken_back(rig: Rig) -> None:
    await announce_images(rig.context, [identity()], None)
    await announce_images(rig.context, [], "pool-a")
    assert len(images_of(rig, NEXT)) == 1
    with pytest.raises(ConfigurationError, match="stack other not found"):
        await announce_images(rig.context, [], "other")


REBOOT = {"kernel": NEXT, "select": ["/sbin/choose"], "restart": ["/sbin/reboot"]}


async def _wanted_no_more(rig: Rig) -> list[str]:
    """What a nightly run takes back, after which the archive has nothing that is new."""
    return [line for line in await announce_images(rig.context, [], None) if "no longer" in line]


async def test_what_a_plan_leads_to_is_not_taken_from_it_although_its_stack_asks_for_it_no_more(rig: Rig) -> None:
    await announce_images(rig.context, [identity()], None)
    built(rig, "1.0", NEXT)
    await rig.run_until(lambda: images_of(rig, NEXT) == [("1.0", "sim", "Ready")])
    revision = rig.apply_stack(rig.make_spec("1.0") | {"reboot": REBOOT})
    await rig.run_second()
    rig.apply_plan("up", revision, approval=None)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_second()
    assert await _wanted_no_more(rig) == []
    rig.cluster.store.mark_deleted(UPGRADE_PLANS, "up")
    await rig.run_until(lambda: rig.cluster.store.find(UPGRADE_PLANS, "up") is None)
    assert await _wanted_no_more(rig) == [f"sim 1.0 for {NEXT} is no longer requested"]


async def test_what_an_open_upgrade_brings_is_not_taken_from_it(rig: Rig) -> None:
    """The stack was changed and the plan is being taken back, but the node is on its way to that kernel."""
    await announce_images(rig.context, [identity()], None)
    built(rig, "1.0", NEXT)
    await rig.run_until(lambda: images_of(rig, NEXT) == [("1.0", "sim", "Ready")])
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("1.0") | {"reboot": REBOOT}))
    await rig.run_until(lambda: [one.status.phase for one in rig.upgrades("up")] == [NodePhase.UPGRADING])
    rig.apply_stack(rig.make_spec("1.0"))
    rig.cluster.store.remove(UPGRADE_PLANS, "up")
    assert await _wanted_no_more(rig) == []


async def test_what_a_failed_upgrade_that_holds_its_node_names_is_kept(rig: Rig) -> None:
    await announce_images(rig.context, [identity()], None)
    built(rig, "1.0", NEXT)
    await rig.run_until(lambda: images_of(rig, NEXT) == [("1.0", "sim", "Ready")])
    rig.fleet.pod_results = lambda which, _: (
        OrderResult(reason=Reason.BUSY, message="no") if which == "upgrade" else None
    )
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("1.0") | {"reboot": REBOOT}))
    await rig.run_until(lambda: [one.status.reason for one in rig.upgrades("up")] == ["RevertFailed"], 4000, stride=5)
    rig.apply_stack(rig.make_spec("1.0"))
    rig.cluster.store.remove(UPGRADE_PLANS, "up")
    assert await _wanted_no_more(rig) == []


async def test_a_stack_without_a_target_is_named_and_stops_no_other_and_nothing_is_deleted(rig: Rig) -> None:
    await announce_images(rig.context, [identity()], None)
    broken = rig.make_spec("1.0") | {"driver": {"vendor": "acme", "version": "1"}}
    rig.cluster.store.put(GPU_STACKS, {"metadata": {"name": "broken"}, "spec": broken})
    left_out = "stack broken is left out: spec.driver: there is no vendor acme, but nvidia and sim"
    assert await announce_images(rig.context, [], None) == [left_out]
    wanted = [identity(), identity("6.1.0-51-amd64")]
    assert await announce_images(rig.context, wanted, None) == ["sim 1.0 for 6.1.0-51-amd64 is requested", left_out]
