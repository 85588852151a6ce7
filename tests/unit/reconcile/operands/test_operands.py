"""Operands of a stack in virtual time: told of, rolled by themselves, mended, and taken away in reverse order."""

from collections import defaultdict

import pytest

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, DRIVER_IMAGES, GPU_STACKS, NODES, PODS
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core.model.phases import NodePhase, PlanPhase, is_final
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.reconcile.gpu_stack import stack_reconciler
from upgrader_dev.simulated.cluster.fleet import RESOURCE
from upgrader_dev.simulated.cluster.rig import STACK, Rig, start_training

GFD, EXPORTER = "registry/gfd:1", "registry/exporter:1"


@pytest.fixture
def rig():
    return Rig()


def standing(rig):
    known = {one.operand.value: (one.shown, one.message) for one in rig.stack_now().status.operands}
    return defaultdict(tuple, known)


def condition(rig, kind):
    conditions = rig.stack_now().status.conditions
    return next(((one.status, one.reason, one.message) for one in conditions if one.type == kind), ("", "", ""))


def daemonsets(rig):
    return {one["metadata"]["name"]: one for one in rig.cluster.store.copy_all(DAEMONSETS)}


def components(rig):
    return sorted(one["metadata"]["labels"][names.LABEL_COMPONENT] for one in rig.cluster.store.copy_all(DAEMONSETS))


def discovery(rig):
    label = names.LABEL_COMPONENT
    return next(one for one in daemonsets(rig).values() if one["metadata"]["labels"][label] == "feature-discovery")


def discovers_by(rig):
    return discovery(rig)["spec"]["template"]["spec"]["containers"][0]["image"]


async def nvidia_pool(rig):
    """A pool with every operand of NVIDIA's, on its open modules."""
    rig.fleet.add_node("gpu-0")
    rig.fleet.add_node("gpu-1")
    rig.put_image("535.1")
    for one in rig.list_objects(DRIVER_IMAGES, DriverImage):
        rig.cluster.store.change(DRIVER_IMAGES, one.metadata.name, {"spec": {"vendor": "nvidia"}})
    for image in (GFD, EXPORTER):
        rig.registry.push(image, f"cc{len(image)}")
    spec = rig.make_spec("535.1") | {
        "driver": {"vendor": "nvidia", "version": "535.1", "unverified": "Allow"},
        "featureDiscovery": {"management": "Managed", "image": GFD, "maxUnavailable": "1"},
        "monitoring": {"management": "Managed", "image": EXPORTER},
    }
    rig.apply_stack(spec)
    await rig.settle()
    await rig.run_until(lambda: standing(rig)["Monitoring"] == ("2/2", ""))
    return spec


async def test_every_operand_is_told_of(rig):
    await nvidia_pool(rig)
    assert standing(rig) == {
        "Driver": ("2/2", ""),
        "Runtime": ("External", ""),
        "DevicePlugin": ("2/2", ""),
        "FeatureDiscovery": ("2/2", ""),
        "Monitoring": ("2/2", ""),
    }
    assert condition(rig, "OperandsReady")[:2] == ("True", "Ready")


async def test_a_pool_in_order_is_not_written_about(rig):
    await nvidia_pool(rig)
    before = rig.cluster.store.find(GPU_STACKS, STACK)["metadata"]["resourceVersion"]
    sets = {name: one["metadata"]["resourceVersion"] for name, one in daemonsets(rig).items()}
    for _ in range(20):
        await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
    assert rig.cluster.store.find(GPU_STACKS, STACK)["metadata"]["resourceVersion"] == before
    assert {name: one["metadata"]["resourceVersion"] for name, one in daemonsets(rig).items()} == sets


async def test_one_that_crashes_after_its_registration_is_named_with_its_node_and_what_it_said(rig):
    await pool(rig, nodes=2)
    (plugin,) = [
        pod
        for pod in rig.cluster.store.copy_all(PODS)
        if pod["metadata"]["labels"].get(names.LABEL_COMPONENT) == "device-plugin"
        and pod["spec"]["nodeName"] == "gpu-1"
    ]
    ended = {"terminated": {"exitCode": 1, "message": "no NVML"}}
    status = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "plugin", "restartCount": 3, "state": ended}],
    }
    rig.cluster.store.change(PODS, plugin["metadata"]["name"], {"status": status}, plugin["metadata"]["namespace"])
    await rig.run_until(lambda: condition(rig, "OperandsReady")[0] == "False")
    said = "gpu-1: container plugin ended with 1, 3 restart(s); its output: no NVML"
    assert standing(rig)["DevicePlugin"] == ("1/2", said)
    assert condition(rig, "OperandsReady") == ("False", "DevicePluginNotReady", f"DevicePlugin 1/2: {said}")


async def test_a_quiet_one_is_pinned_when_it_is_named_and_rolls_when_it_is_named_otherwise(rig):
    spec = await nvidia_pool(rig)
    pinned = discovers_by(rig)
    assert "@sha256:" in pinned
    before = daemonsets(rig)
    rig.registry.push(GFD, "dd")  # somebody pushes other bytes under the same tag
    for _ in range(20):
        await rig.run_second()
    assert {one: value["spec"] for one, value in daemonsets(rig).items()} == {
        one: value["spec"] for one, value in before.items()
    }

    rig.registry.push("registry/gfd:2", "ee")
    rig.apply_stack(spec | {"featureDiscovery": spec["featureDiscovery"] | {"image": "registry/gfd:2"}})
    await rig.run_until(lambda: "ee" in discovers_by(rig))
    after = daemonsets(rig)
    changed = {one for one in after if after[one]["spec"] != before[one]["spec"]}
    assert changed == {discovery(rig)["metadata"]["name"]}  # and no other operand is touched
    assert discovery(rig)["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}


async def test_an_image_that_is_missing_is_said_and_nothing_else_waits_for_it(rig):
    spec = await nvidia_pool(rig)
    rig.apply_stack(spec | {"monitoring": {"management": "Managed", "image": "registry/none:1"}})
    await rig.run_until(lambda: condition(rig, "OperandsReady")[0] == "False")
    said = "registry/none:1 is not in its registry; push it, or correct the image of Monitoring"
    assert standing(rig)["Monitoring"] == ("2/2", said)
    assert standing(rig)["FeatureDiscovery"] == ("2/2", "")


@pytest.mark.parametrize(
    ("part", "field"), [("devicePlugin", "devicePlugin.image"), ("runtime", "runtime.image")], ids=["plugin", "hook"]
)
async def test_one_of_a_node_upgrade_whose_image_is_missing_makes_no_revision_and_changes_no_node(rig, part, field):
    revision = await start_training(rig)
    before = [one["metadata"]["labels"] for one in rig.nodes()]
    spec = rig.make_spec("2.0")
    managed = {"management": "Managed", "image": "registry/none:1"}
    rig.apply_stack(spec | {part: {**spec.get(part, {}), **managed}})
    await rig.run_until(lambda: condition(rig, "Valid")[0] == "False")
    said = f"registry/none:1 is not in its registry; push it, or correct spec.{field}"
    assert condition(rig, "Valid") == ("False", "RevisionNotMade", said)
    for _ in range(30):
        await rig.run_second()
    assert [one["metadata"]["labels"] for one in rig.nodes()] == before
    assert rig.nodes_on(revision) == 0
    assert rig.fleet.trainers["gang"].stops == 0


async def evict_drivers(rig):
    """Somebody deletes every driver pod; their DaemonSets make others."""
    found = [
        pod
        for pod in rig.cluster.store.copy_all(PODS)
        if pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "driver"
    ]
    for pod in found:
        rig.cluster.store.mark_deleted(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
    return len(found)


async def test_a_driver_pod_that_somebody_evicts_comes_back_and_nothing_else_happens(rig):
    """Its end unloads nothing: the driver stays loaded, and the next pod finds it so."""
    await start_training(rig)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_second()
    upgrades, stops = len(rig.upgrades()), rig.fleet.trainers["gang"].stops
    assert await evict_drivers(rig) == 2
    await rig.run_until(lambda: condition(rig, "OperandsReady")[0] == "False", 10)
    await rig.run_until(lambda: condition(rig, "OperandsReady")[0] == "True", 30)
    for _ in range(30):
        await rig.run_second()
    assert (len(rig.upgrades()), rig.fleet.trainers["gang"].stops) == (upgrades, stops)
    assert rig.stack_now().status.drifted == 0


async def test_a_driver_pod_that_somebody_evicts_in_a_node_upgrade_is_waited_for(rig):
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.LOADING})
    for _ in range(5):
        await evict_drivers(rig)
        await rig.run_second()
    await rig.run_until(lambda: rig.is_over("up"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)
    assert rig.fleet.trainers["gang"].lost == 0


async def test_one_that_becomes_external_goes_and_what_others_run_is_never_touched(rig):
    spec = await nvidia_pool(rig)
    other_plugin = {
        "metadata": {"name": "dcgm-exporter", "namespace": "gpu-upgrader-system"},
        "spec": {"template": {"spec": {}}},
    }
    rig.cluster.store.put(DAEMONSETS, other_plugin)
    rig.apply_stack(spec | {"monitoring": {"management": "External"}})
    await rig.run_until(lambda: standing(rig)["Monitoring"] == ("External", ""))
    await rig.run_until(lambda: "dcgm-exporter" in daemonsets(rig) and len(daemonsets(rig)) == 4)


async def test_a_daemonset_that_somebody_removed_is_made_again(rig):
    await pool(rig, nodes=2)
    before = daemonsets(rig)
    for name in before:
        rig.cluster.store.remove(DAEMONSETS, name, "gpu-upgrader-system")
    await rig.run_until(lambda: daemonsets(rig).keys() == before.keys())
    await rig.run_until(lambda: standing(rig)["DevicePlugin"] == ("2/2", ""))


async def test_a_stack_that_is_deleted_takes_its_operands_the_last_of_the_order_first(rig):
    await nvidia_pool(rig)
    rig.cluster.store.remove(GPU_STACKS, STACK)
    seen = [components(rig)]
    for _ in range(20):
        assert await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings) is None or len(seen) < 6
        if components(rig) != seen[-1]:
            seen.append(components(rig))
    everything = ["device-plugin", "driver", "feature-discovery", "monitoring"]
    assert seen == [everything, everything[:3], everything[:2], ["driver"], []]
    labels = {one["metadata"]["labels"][names.LABEL_DRIVER] for one in rig.nodes()}
    assert len(labels) == 1  # a driver stays loaded, and its node says which
    assert labels != {"none"}


async def test_operands_that_another_stacks_nodes_need_stay_with_them(rig):
    await pool(rig, nodes=1)
    rig.fleet.add_node("other-0")
    rig.cluster.store.change(NODES, "other-0", {"metadata": {"labels": {"pool": "b"}}})
    rig.apply_stack(rig.make_spec("1.0") | {"nodeSelector": {"pool": "b"}}, "pool-b")
    await rig.run_until(lambda: rig.nodes_on(rig.stack_now().status.update_revision or "?") == 2)
    made = daemonsets(rig).keys()
    rig.cluster.store.remove(GPU_STACKS, STACK)
    for _ in range(5):
        assert await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings), (
            "they are looked after for as long as they stay"
        )
    assert daemonsets(rig).keys() == made
    rig.cluster.store.remove(NODES, "other-0")
    for _ in range(10):
        last = await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
    assert (daemonsets(rig), last) == ({}, None), "and go when no node needs them any more"


async def test_a_stack_deleted_while_a_rollout_runs_keeps_its_operands_until_the_upgrades_have_ended(rig):
    revision = await start_training(rig)
    rig.apply_plan("p", revision)
    await rig.run_until(lambda: any(one.status.phase is NodePhase.UPGRADING for one in rig.upgrades("p")))
    rig.cluster.store.remove(GPU_STACKS, STACK)
    while not all(is_final(one.status.phase) for one in rig.upgrades("p")):
        assert "driver" in components(rig)
        await rig.run_second()
        await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
    for _ in range(10):
        await rig.run_second()
        await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
    assert components(rig) == []
    rig.assert_nothing_left()


async def test_stacks_with_operands_are_known_also_when_they_are_gone(rig):
    await pool(rig)
    assert await stack_reconciler.with_operands(rig.context) == {STACK}
    rig.cluster.store.remove(GPU_STACKS, STACK)
    assert await stack_reconciler.with_operands(rig.context) == {STACK}


async def test_beside_an_external_device_plugin_only_the_driver_is_managed(rig):
    rig.fleet.external_plugin = True
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.put_image("2.0")
    external = {"devicePlugin": {"management": "External", "resourceName": RESOURCE}}
    rig.apply_stack(rig.make_spec("1.0") | external)
    await rig.settle()
    await rig.run_until(lambda: standing(rig)["DevicePlugin"] == ("External", ""))
    assert components(rig) == ["driver"]
    rig.apply_plan("p", rig.apply_stack(rig.make_spec("2.0") | external))
    await rig.run_until(lambda: rig.is_over("p"))
    assert rig.plan_now("p").status.phase is PlanPhase.COMPLETED
    assert names.LABEL_DEVICE_PLUGIN not in rig.nodes()[0]["metadata"]["labels"]


async def test_a_plugin_that_is_left_to_somebody_else_is_taken_away_in_a_node_upgrade_only(rig):
    await pool(rig)
    (before,) = [one for one in components(rig) if one == "device-plugin"]
    revision = rig.apply_stack(
        rig.make_spec("1.0") | {"devicePlugin": {"management": "External", "resourceName": RESOURCE}}
    )
    for _ in range(20):
        await rig.run_second()
    assert before in components(rig)
    assert [(one.reason, one.nodes) for one in rig.stack_now().status.drift] == [("DevicePlugin", 1)]
    rig.fleet.external_plugin = True
    rig.apply_plan("p", revision)
    await rig.run_until(lambda: rig.is_over("p"))
    await rig.run_until(lambda: components(rig) == ["driver"])


def hook_spec(rig, version):
    image = rig.registry.push("registry/hook:1", "ff")
    assert image
    return rig.make_spec(version) | {"runtime": {"management": "Managed", "image": "registry/hook:1"}}


async def test_a_runtime_hook_comes_in_a_node_upgrade_and_changes_the_plugin_that_goes_by_it(rig):
    await pool(rig)
    before = components(rig)
    revision = rig.apply_stack(hook_spec(rig, "1.0"))
    for _ in range(20):
        await rig.run_second()
    assert components(rig) == before  # it is disruptive: nothing changes outside a node upgrade
    drifted = {(one.reason, one.nodes) for one in rig.stack_now().status.drift}
    assert drifted == {("DevicePlugin", 1), ("Runtime", 1)}
    rig.apply_plan("p", revision)
    await rig.run_until(lambda: rig.is_over("p"))
    await rig.run_until(lambda: standing(rig)["Runtime"] == ("1/1", ""))
    await rig.run_until(lambda: components(rig) == ["device-plugin", "driver", "runtime"])
    labels = rig.nodes()[0]["metadata"]["labels"]
    (hook,) = [one for one in daemonsets(rig).values() if one["metadata"]["labels"][names.LABEL_COMPONENT] == "runtime"]
    assert labels[names.LABEL_RUNTIME] == hook["metadata"]["labels"][names.LABEL_IMAGE_KEY]


async def test_going_back_takes_the_runtime_hook_away_again(rig):
    await pool(rig)
    revision = rig.apply_stack(hook_spec(rig, "1.0"))
    rig.fleet.pod_results = lambda which, pod: (
        OrderResult(reason=Reason.DEVICE_FAILED, message="no GPU")
        if which == "validate" and pod["metadata"]["name"].startswith("validate-")
        else None
    )
    rig.apply_plan("p", revision)
    await rig.run_until(lambda: any(is_final(one.status.phase) for one in rig.upgrades("p")))
    assert names.LABEL_RUNTIME not in rig.nodes()[0]["metadata"]["labels"]
    assert [one.status.reason for one in rig.upgrades("p")] == ["NotValid"]


def shared(rig, slices):
    spec = rig.make_spec("1.0")
    return spec | {"devicePlugin": spec["devicePlugin"] | {"sharing": {"timeSlices": slices} if slices else {}}}


def offered(rig):
    return {one["status"]["allocatable"][RESOURCE] for one in rig.nodes()}


async def test_gpus_are_shared_and_unshared_by_upgrades_that_know_what_a_node_should_offer_then(rig):
    await pool(rig, nodes=2)
    rig.apply_plan("shared", rig.apply_stack(shared(rig, 4)))
    await rig.run_until(lambda: rig.is_over("shared"))
    assert offered(rig) == {"32"}
    rig.fleet.add_job(
        "gang", members=2, gpus=20
    )  # shares of more GPUs than the node has: a gang counts what it asks for
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 10)
    rig.apply_plan("fewer", rig.apply_stack(shared(rig, 3)))
    await rig.run_until(lambda: rig.is_over("fewer"))
    assert [rig.plan_now(one).status.phase for one in ("shared", "fewer")] == [PlanPhase.COMPLETED] * 2
    assert offered(rig) == {"24"}
    assert rig.fleet.trainers["gang"].stops == 2  # each of its members, once
    rig.assert_nothing_left()
