"""Law: whatever a node upgrade would end without GPUs was judged by the forecast, as what has GPUs is."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.facts import target
from tests.support.node_upgrades import state, upgrade
from tests.support.observed import GPUS, NOW, OWN, STACK, node, pod, wire
from upgrader.api import names
from upgrader.api.v1alpha1 import DriverImage, RebootSpec
from upgrader.reconcile.facts.reading import ClusterReading
from upgrader.reconcile.node_upgrade.upgrade_reading import build_view
from upgrader.reconcile.observe import cluster_snapshot

NOW_RUNS, NEXT = "6.1.0-47-amd64", "6.1.0-50-amd64"
REBOOT = {"source": NOW_RUNS, "target": NEXT, "select": ["/sbin/choose"], "restart": ["/sbin/reboot"]}
PERHAPS = REBOOT | {"target": NOW_RUNS, "when": "UnloadFailed"}
NODES = {name: node(name, {"pool": "a"}, nodeInfo={"kernelVersion": NOW_RUNS}) for name in ("a", "b")}
IMAGE = wire(
    {
        "metadata": {"name": "sim-570.10"},
        "spec": {"vendor": "sim", "version": "570.10", "kernel": NOW_RUNS, "image": "registry.example/driver:1"},
        "status": {"phase": "Ready", "key": "b" * 16, "digest": f"registry.example/driver@sha256:{'b' * 64}"},
    },
    DriverImage,
)
REBOOTING = msgspec.structs.replace(
    STACK.spec,
    driver=msgspec.structs.replace(STACK.spec.driver, on_unload_failure="Reboot", unverified="Allow"),
    reboot=RebootSpec(kernel=NOW_RUNS, select=["/sbin/choose"]),
)
OWNERS = st.sampled_from(
    [None, *((kind, f"{kind}-x".lower()) for kind in ("Job", "ReplicaSet", "StatefulSet", "DaemonSet", "Node", "Odd"))]
)
LABELS = st.sampled_from([{}, {"app": "x"}, {names.LABEL_COMPONENT: "validate"}])
ANNOTATIONS = st.sampled_from(
    [{}, {names.ANNOTATION_METHOD: "file"}, {"karpenter.sh/do-not-disrupt": "true"}, {names.ANNOTATION_METHOD: "none"}]
)


@st.composite
def pods(draw):
    count = draw(st.integers(1, 6))
    phases = st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])
    made = [
        pod(
            f"pod-{number}",
            draw(st.sampled_from(["a", "b", "elsewhere", ""])),
            owner=draw(OWNERS),
            gpus=draw(st.sampled_from([None, None, "8"])),
            labels=draw(LABELS),
            namespace=draw(st.sampled_from(["ml", OWN])),
            annotations=draw(ANNOTATIONS),
        )
        for number in range(count)
    ]
    return [
        msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, phase=draw(phases))) for one in made
    ]


SET = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
EMPTYING = {
    "a reboot": (STACK.spec, target(kernel=NEXT), {"reboot": REBOOT}),
    "a reboot after a failed unload": (REBOOTING, target(kernel=NOW_RUNS), {"reboot": PERHAPS}),
    "settings": (
        STACK.spec,
        target(kubelet_settings=tuple(SET.items())),
        {"target": state("570.10", "1.34.4", "b", kubeletSettings=SET)},
    ),
}


@pytest.mark.parametrize(("spec", "wanted", "ordered"), EMPTYING.values(), ids=EMPTYING)
@examples(200)
@given(seen=pods())
def test_every_pod_that_a_node_upgrade_would_end_belongs_to_a_gang_that_the_forecast_looks_at(
    spec, wanted, ordered, seen
):
    reading = ClusterReading(own_namespace=OWN, nodes=NODES, pods=seen, images=[IMAGE])
    judged = {
        member.uid
        for gang in cluster_snapshot.snapshot_of(reading, spec, GPUS, NOW, empties=wanted).gangs
        for member in gang.members
    }
    for name, at in NODES.items():
        node_upgrade = upgrade(node=name, **ordered)
        here = [one for one in seen if one.spec.node_name == name]
        view = build_view(node_upgrade, at, here, None, frozenset(), {}, namespace=OWN)
        assert {one.uid for one in view.others} <= judged


@examples(300)
@given(pods())
def test_where_nothing_is_rebooted_only_what_belongs_to_a_pod_with_gpus_is_looked_at(seen):
    reading = ClusterReading(own_namespace=OWN, nodes=NODES, pods=seen)
    for gang in cluster_snapshot.snapshot_of(reading, STACK.spec, GPUS, NOW).gangs:
        assert gang.gpus > 0
