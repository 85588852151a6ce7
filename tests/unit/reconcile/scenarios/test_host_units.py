"""Units of the nodes that a stack stops: recorded in its upgrades at their creation, and part of their orders."""

import json

import msgspec
import pytest

from upgrader.api.resources import JOBS
from upgrader.api.v1alpha1.node_specs import HostSpec
from upgrader.core.node_protocol.orders import ORDER_VARIABLE
from upgrader.stack.naming import upgrade_name
from upgrader_dev.simulated.cluster.rig import Rig, start_training

UNITS = ["nvidia-dcgm.service", "telegraf@gpu.service"]


async def test_an_upgrade_keeps_the_units_of_its_creation_and_stops_them() -> None:
    rig = Rig()
    rig.steps_at_once = 1
    await start_training(rig, nodes=1, members=1)
    spec = rig.make_spec("2.0", plugin="2", kubelet="1.35.4")
    rig.apply_plan("up", rig.apply_stack(spec | {"host": {"stop": UNITS}}))
    await rig.run_until(lambda: bool(rig.upgrades("up")))
    rig.apply_stack(spec)
    (upgrade,) = rig.upgrades("up")
    assert upgrade.spec.stop_units == UNITS
    name = upgrade_name(upgrade, reverting=False)

    def find_jobs() -> list[dict[str, object]]:
        return [job for job in rig.cluster.store.copy_all(JOBS) if job["metadata"]["name"] == name]

    await rig.run_until(lambda: bool(find_jobs()))
    (job,) = find_jobs()
    (container,) = job["spec"]["template"]["spec"]["containers"]  # type: ignore[index]
    order = next(json.loads(one["value"]) for one in container["env"] if one["name"] == ORDER_VARIABLE)
    assert order["stop_units"] == UNITS
    await rig.run_until(lambda: rig.is_over("up"))
    rig.assert_nothing_left()


@pytest.mark.parametrize(
    "name", ["", "a.service; reboot", "-a.service", "a.mount", "a", "../a.service", "a\\x2d.service"]
)
def test_a_name_that_is_no_unit_is_rejected(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"stop": [name]}, HostSpec)
