"""The Service and the ServiceMonitor of a stack's exporters in virtual time: there while there are exporters."""

import pytest

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, GPU_STACKS, NODES, PODS, SERVICE_MONITORS, SERVICES
from upgrader.core.errors import ClusterError
from upgrader.core.model.phases import NodePhase, is_final
from upgrader.reconcile.gpu_stack import stack_reconciler
from upgrader_dev.simulated.cluster.rig import STACK, Rig

EXPORTER = "registry/exporter:1"
KIND = (SERVICE_MONITORS.group, SERVICE_MONITORS.plural)


@pytest.fixture
def rig():
    found = Rig()
    found.registry.push(EXPORTER, "cc")
    return found


def monitored(rig, version="1.0", *, management="Managed"):
    named = {"image": EXPORTER} if management == "Managed" else {}
    return rig.make_spec(version) | {"monitoring": {"management": management, **named}}


def there(rig):
    """Kinds of what there is of the monitoring, in the order of their coming up."""
    label = {names.LABEL_COMPONENT: "monitoring", names.LABEL_STACK: STACK}
    return [
        kind.kind
        for kind in (DAEMONSETS, SERVICES, SERVICE_MONITORS)
        if any(label.items() <= one["metadata"]["labels"].items() for one in rig.cluster.store.copy_all(kind))
    ]


def told(rig):
    standings = (one for one in rig.stack_now().status.operands if one.operand.value == "Monitoring")
    return next(((one.shown, one.message) for one in standings), ("", ""))


async def running(rig):
    await pool(rig)
    rig.apply_stack(monitored(rig))
    await rig.run_until(lambda: told(rig) == ("1/1", ""))


def install(rig):
    rig.cluster.installed |= {KIND: ("v1",)}


def found(rig):
    return [one for kind in (SERVICES, SERVICE_MONITORS) for one in rig.cluster.store.copy_all(kind)]


EVERYTHING = ["DaemonSet", "Service", "ServiceMonitor"]


async def test_a_servicemonitor_is_made_only_where_its_kind_is_served_also_when_that_comes_later(rig):
    await running(rig)
    assert there(rig) == ["DaemonSet", "Service"]
    install(rig)
    await rig.run_until(lambda: there(rig) == EVERYTHING)
    before = [one["metadata"]["resourceVersion"] for one in found(rig)]
    for _ in range(20):
        await rig.run_second()
    assert [one["metadata"]["resourceVersion"] for one in found(rig)] == before


async def test_another_version_of_its_kind_is_not_one_that_we_write(rig):
    rig.cluster.installed |= {KIND: ("v1beta9",)}
    await running(rig)
    assert there(rig) == ["DaemonSet", "Service"]


async def test_what_somebody_changed_or_removed_is_put_right(rig):
    install(rig)
    await running(rig)
    name = found(rig)[0]["metadata"]["name"]
    rig.cluster.store.remove(SERVICES, name, "gpu-upgrader-system")
    change = {"metadata": {"annotations": {names.ANNOTATION_MANIFEST: "of another release"}}, "spec": {"endpoints": []}}
    rig.cluster.store.change(SERVICE_MONITORS, name, change, "gpu-upgrader-system")
    await rig.run_until(lambda: there(rig) == EVERYTHING)
    await rig.run_until(lambda: found(rig)[1]["spec"]["endpoints"] != [])


async def test_all_of_it_goes_when_it_is_turned_off_the_exporter_last(rig):
    install(rig)
    await running(rig)
    seen = []
    rig.cluster.store.listeners.append(lambda _: seen.append(there(rig)) if seen[-1:] != [there(rig)] else None)
    rig.apply_stack(monitored(rig, management="External"))
    await rig.run_until(lambda: there(rig) == [])
    assert seen == [EVERYTHING, EVERYTHING[:2], EVERYTHING[:1], []]
    await rig.run_until(lambda: told(rig) == ("External", ""))


async def test_all_of_it_goes_with_its_stack_and_that_of_another_stack_stays(rig):
    install(rig)
    await running(rig)
    rig.fleet.add_node("other-0")
    rig.cluster.store.change(NODES, "other-0", {"metadata": {"labels": {"pool": "b"}}})
    rig.apply_stack(monitored(rig) | {"nodeSelector": {"pool": "b"}}, "pool-b")
    await rig.run_until(lambda: len(found(rig)) == 4)
    rig.cluster.store.remove(GPU_STACKS, STACK)
    for _ in range(20):
        await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
    assert there(rig) == []
    assert [one["metadata"]["labels"][names.LABEL_STACK] for one in found(rig)] == ["pool-b"] * 2


async def test_a_kind_that_is_taken_away_keeps_nothing_up(rig):
    install(rig)
    await running(rig)
    rig.cluster.installed.clear()
    rig.apply_stack(monitored(rig, management="External"))
    await rig.run_until(lambda: "DaemonSet" not in there(rig))
    assert there(rig) == ["ServiceMonitor"]  # goes with its kind


async def test_one_that_is_refused_is_said_and_the_rest_is_kept(rig):
    install(rig)

    def refuse(write):
        if (write.verb, write.kind) == ("apply", "ServiceMonitor"):
            raise ClusterError("servicemonitors is forbidden: apply deploy/rbac.yaml again")

    rig.cluster.before_write = refuse
    await pool(rig)
    rig.apply_stack(monitored(rig))
    said = "its ServiceMonitor was refused: servicemonitors is forbidden: apply deploy/rbac.yaml again"
    await rig.run_until(lambda: told(rig) == ("1/1", said))
    rig.cluster.before_write = None
    await rig.run_until(lambda: told(rig) == ("1/1", ""))


async def test_a_node_upgrade_turns_the_exporter_off_and_waits_until_it_is_gone(rig):
    await running(rig)
    rig.put_image("2.0")
    rig.apply_plan("p", rig.apply_stack(monitored(rig, "2.0")))
    await rig.run_until(lambda: any(one.status.phase is NodePhase.UPGRADING for one in rig.upgrades("p")))
    pods = {one["metadata"]["labels"].get(names.LABEL_COMPONENT) for one in rig.cluster.store.copy_all(PODS)}
    assert pods == {"prepare", "validate", "upgrade"}
    await rig.run_until(lambda: all(is_final(one.status.phase) for one in rig.upgrades("p")))
    await rig.run_until(lambda: told(rig) == ("1/1", ""))
