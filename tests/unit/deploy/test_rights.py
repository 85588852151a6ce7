"""deploy/ gives the controller the rights that whole rollouts use, and no other."""

import asyncio
import contextlib
from functools import partial

import msgspec
import pytest

from tests.support.claims import claiming
from tests.support.deployed import deployed
from tests.support.drifting import KERNEL, NEXT, images_of, made_by_recipe, reboots
from tests.support.manifests import checkpoint_request
from tests.support.owners import owner
from tests.support.pools import pool
from tests.support.rights import JOBS_IN, covers, granted
from tests.support.stuck_pods import StuckPods
from upgrader.api import names
from upgrader.api.kinds import KINDS
from upgrader.api.kubernetes import ObjectMeta, OwnerReference, Pod
from upgrader.api.resources import (
    JOBS,
    NAMESPACES,
    NODE_FEATURES,
    NODE_UPGRADES,
    NODES,
    PDBS,
    PODS,
    SERVICE_MONITORS,
    UPGRADE_PLANS,
)
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.api.v1alpha1.checkpoint_request import OwnerRef
from upgrader.core.errors import ConflictError
from upgrader.core.model.phases import NodePhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.workloads.owner_kinds import BETWEEN, OWNERS
from upgrader.core.workloads.placement import Placement
from upgrader.kube.lease import LEASES
from upgrader.reconcile.checkpoint_request import live_owners
from upgrader.reconcile.checkpoint_request.live_owners import LiveOwner, resource_of
from upgrader.reconcile.facts import owner_reading
from upgrader.reconcile.facts.device_claims import CLAIM
from upgrader.reconcile.runtime.context import Context
from upgrader_dev.simulated.apiserver.cluster import Use
from upgrader_dev.simulated.cluster.rig import Rig, start_training

SYSTEM = "gpu-upgrader-system"
UNSEEN = {
    # Rights that no rollout on the fake cluster shows, by who uses them.
    *((verb, kind.resource.plural) for verb in ("list", "watch") for kind in KINDS),  # kopf
    ("list", NODES.plural),
    *(("watch", kind.plural) for kind in (NODES, PODS, NAMESPACES, JOBS)),  # informers
    *((verb, LEASES.plural) for verb in ("get", "create", "patch")),  # the lease
}


async def rollout(ending: str) -> set[Use]:
    rig = Rig()
    rig.cluster.install(*OWNERS, *BETWEEN)
    revision = await start_training(rig, gpus=4)
    rig.fleet.add_replica("server", node="gpu-0", gpus=4)
    deployed(rig.cluster.store, "server")
    rig.apply_plan("up", revision)
    if ending != "Running":
        await rig.run_until(lambda: rig.fleet.trainers["gang"].stops > 0)
        rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": ending}})
    await rig.run_until(lambda: rig.is_over("up"), 3000)
    for _ in range(10):  # what is taken away when it is over
        with contextlib.suppress(ConflictError):  # the controller looks again then
            await rig.run_second()
    return rig.cluster.uses


async def spoken_to_by_http() -> set[Use]:
    """A job that is called at its endpoint refuses at first."""
    rig = Rig()
    for number in range(2):
        rig.fleet.add_node(f"gpu-{number}")
    rig.put_image("1.0")
    rig.put_image("2.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    rig.fleet.add_job("gang", members=2, method="http")
    declared = {names.ANNOTATION_ENDPOINT: ":8080/checkpoint"}
    change = {"spec": {"template": {"metadata": {"annotations": declared}}}}
    rig.cluster.store.change(JOBS, "gang", change, JOBS_IN)
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 10)
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0")), checkpoint={"retrySeconds": 60})
    rig.fleet.trainers["gang"].answers = lambda pod, request, _: {
        "requestId": request,
        "podUid": pod["metadata"]["uid"],
        "step": 0,
        "refused": "no",
    }
    await rig.run_until(lambda: bool(rig.requests()) and rig.requests()[0].status.reason == "Refused")
    rig.fleet.trainers["gang"].answers = None
    await rig.run_until(lambda: rig.is_over("up"), 3000)
    return rig.cluster.uses


async def repaired() -> set[Use]:
    """A node is installed at the second attempt, and what is left of the first is deleted."""
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.fleet.pod_results = lambda which, _: (
        OrderResult(reason=Reason.DISK_FULL, message="disk full") if which == "prepare" else None
    )
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: [one.status.phase for one in rig.upgrades()] == [NodePhase.FAILED])
    blocked = {"metadata": {"finalizers": [names.FINALIZER]}}
    rig.cluster.store.change(NODE_UPGRADES, rig.upgrades()[0].metadata.name, blocked)
    rig.fleet.pod_results = lambda _component, _pod: None
    await rig.run_until(lambda: [one.status.phase for one in rig.upgrades()] == [NodePhase.SUCCEEDED], 2000, stride=10)
    return rig.cluster.uses


async def bereft() -> set[Use]:
    """A node is deleted while its upgrade Job runs; the Job goes with it."""
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.apply_stack(rig.make_spec("1.0"))
    own_namespace = rig.context.stack.namespace

    def upgrading() -> list[dict]:
        return [one for one in rig.cluster.store.copy_all(JOBS) if one["metadata"]["namespace"] == own_namespace]

    await rig.run_until(lambda: bool(upgrading()))
    rig.cluster.store.remove(NODES, "gpu-0")
    await rig.run_until(lambda: [one.status.phase for one in rig.upgrades()] == [NodePhase.NODE_DELETED])
    assert upgrading() == []
    return rig.cluster.uses


async def ordered() -> set[Use]:
    """A person orders a pod away that its budget keeps."""
    rig = Rig()
    revision = await start_training(rig, nodes=1, members=1, gpus=4)
    rig.fleet.add_replica("server", node="gpu-0", gpus=4)
    budget = {"spec": {"selector": {"matchLabels": {}}}, "status": {"disruptionsAllowed": 1}}
    rig.cluster.store.put(PDBS, {"metadata": {"name": "all", "namespace": JOBS_IN}, **budget})
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.fleet.trainers["gang"].stops == 0 and bool(rig.upgrades("up")))
    force = {"step": "Draining", "by": "ann", "at": "2026-11-21T09:00:00Z", "reason": "agreed"}
    rig.cluster.store.change(NODE_UPGRADES, rig.upgrades("up")[0].metadata.name, {"spec": {"force": [force]}})
    await rig.run_until(lambda: rig.is_over("up"))
    return rig.cluster.uses


async def not_admitted() -> set[Use]:
    """A kubelet that knows no device plugin yet refuses the validation pod, which is made again."""
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.apply_stack(rig.make_spec("1.0"))
    rig.fleet.refuses_devices = {"gpu-0"}
    await rig.run_until(lambda: [one.status.phase for one in rig.upgrades()] == [NodePhase.VALIDATING])
    for _ in range(20):
        await rig.run_second()
    rig.fleet.refuses_devices = set()
    await rig.run_until(lambda: [one.status.phase for one in rig.upgrades()] == [NodePhase.SUCCEEDED])
    return rig.cluster.uses


async def aged() -> set[Use]:
    """Ended plans and old revisions are more than their stack keeps."""
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    for version in ("1.0", "2.0", "3.0", "4.0"):
        rig.put_image(version)
        revision = rig.apply_stack(rig.make_spec(version) | {"historyLimit": 1})
        if version == "1.0":
            await rig.settle()
            continue
        rig.apply_plan(f"to-{version}", revision)
        await rig.run_until(lambda name=f"to-{version}": rig.is_over(name))
        for _ in range(3):
            await rig.run_second()
    return rig.cluster.uses


async def asked_in_vain() -> set[Use]:
    """A gang does not answer, is asked again, and what is past of that goes."""
    rig = Rig()
    revision = await start_training(rig)
    rig.fleet.trainers["gang"].answers = lambda *_: None
    rig.apply_plan("up", revision, checkpoint={"timeoutSeconds": 30, "retrySeconds": 60})
    await rig.run_until(lambda: rig.plan_now("up").status.ended.count == 2, 6000, stride=10)
    return rig.cluster.uses


async def switched() -> set[Use]:
    """An owner of each kind is stopped, the stop is given up, and it is restarted."""
    rig = Rig()
    for row in OWNERS:
        resource = resource_of(row, row.api_version)
        made = rig.cluster.store.put(resource, owner(row, f"{row.kind}-{row.group}".lower()))
        request = msgspec.convert(checkpoint_request(row.kind.lower()), CheckpointRequest)
        reference = OwnerRef(
            kind=row.kind, api_version=row.api_version, name=made["metadata"]["name"], uid=made["metadata"]["uid"]
        )
        for act in (live_owners.suspend_owner, live_owners.fence_owner, partial(restarted, request=request)):
            live = await live_owners.read_owner(rig.context, reference, JOBS_IN)
            await live_owners.read_pods(rig.context, live, request)
            await live_owners.explain_forbidden(rig.context, request.spec.gang, live, [Pod(metadata=live.meta)], [])
            await act(rig.context, live, request)
    return rig.cluster.uses


async def declared() -> set[Use]:
    """A pod with GPUs belongs to a DaemonSet."""
    rig = Rig()
    above = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="web", uid="ds", controller=True)
    pod = Pod(metadata=ObjectMeta(name="web-0", namespace=JOBS_IN, owner_references=[above]))
    await owner_reading.declared_above(rig.cluster, pod)
    return rig.cluster.uses


async def claimed() -> set[Use]:
    """A pod holds GPUs by a ResourceClaim."""
    rig = Rig()
    rig.cluster.installed |= {(CLAIM.group, CLAIM.plural): (CLAIM.version,)}
    await pool(rig)
    claiming(rig.cluster.store, "solo", node="gpu-0", of="one")
    await rig.run_second()
    return rig.cluster.uses


async def restarted(context: Context, live: LiveOwner, *_: object, request: CheckpointRequest) -> None:
    await live_owners.resume_owner(context, live, request.metadata.name, Placement())


async def labelled() -> set[Use]:
    """A stack labels its nodes beside node-feature-discovery, and leaves them again."""
    rig = Rig()
    rig.cluster.installed |= {(NODE_FEATURES.group, NODE_FEATURES.plural): (NODE_FEATURES.version,)}
    rig.fleet.add_node("gpu-0")
    for mode in ("Auto", "External"):
        rig.apply_stack(rig.make_spec("1.0") | {"nodeFeatures": mode})
        for _ in range(5):
            await rig.run_second()
    return rig.cluster.uses


async def stuck() -> set[Use]:
    """A pod of the operator does not start, and the reason is looked up."""
    rig = Rig()
    await pool(rig)
    rig.others.append(StuckPods(rig.cluster, "driver", {"gpu-0"}))
    for _ in range(70):
        await rig.run_second()
    return rig.cluster.uses


async def monitored() -> set[Use]:
    """A stack has exporters where Prometheus' operator runs, and has them no longer."""
    rig = Rig()
    rig.cluster.installed |= {(SERVICE_MONITORS.group, SERVICE_MONITORS.plural): (SERVICE_MONITORS.version,)}
    rig.registry.push("registry/exporter:1", "cc")
    await pool(rig)
    for monitoring in ({"management": "Managed", "image": "registry/exporter:1"}, {"management": "External"}):
        rig.apply_stack(rig.make_spec("1.0") | {"monitoring": monitoring})
        for _ in range(5):
            await rig.run_second()
    return rig.cluster.uses


async def removed_driver() -> set[Use]:
    """A node comes up with a kernel without an image; the image is asked for, and goes when nobody needs it."""
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    made_by_recipe(rig, "1.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    reboots(rig, "gpu-0", boot="boot-2")
    await rig.run_until(lambda: bool(images_of(rig, NEXT)))
    reboots(rig, "gpu-0", boot="boot-3", kernel=KERNEL)
    rig.cluster.clock.advance(8 * 86400)
    await rig.run_until(lambda: not images_of(rig, NEXT))
    return rig.cluster.uses


@pytest.fixture(scope="module")
def uses() -> set[Use]:
    """What the controller does in a rollout, in one that is undone, with somebody else's pod in the way, for a node
    that cannot be installed at first, for one whose validation is not admitted, for one that is deleted, to owners of
    each kind, to what is past, to a gang that does not answer, and by a person's order; for pods of DaemonSets and pods
    with claims; to labels of nodes, to images of drivers, and for a pod that does not start.
    """
    asked = (rollout("Running"), rollout("RolledBack"), spoken_to_by_http())
    looked_after = (labelled(), monitored(), removed_driver(), stuck())
    read = (declared(), claimed())
    runs = (
        *asked,
        repaired(),
        not_admitted(),
        bereft(),
        switched(),
        aged(),
        asked_in_vain(),
        ordered(),
        *read,
        *looked_after,
    )
    return set().union(*(asyncio.run(one) for one in runs))


def test_everything_that_a_rollout_does_is_allowed(uses):
    rights = list(granted())
    missing = {use for use in uses if not any(covers(namespace, right, use) for namespace, right in rights)}
    assert missing == set()


def test_nothing_is_allowed_that_nobody_does(uses):
    idle = {
        (namespace, right.verb, right.group, right.resource)
        for namespace, right in granted()
        if (right.verb, right.resource) not in UNSEEN and not any(covers(namespace, right, use) for use in uses)
    }
    assert idle == set()


def test_jobs_are_changed_only_where_a_role_binding_says_so(uses):
    cluster_wide = {(right.verb, right.resource) for namespace, right in granted() if namespace == "*"}
    touching = {use for use in uses if use.namespace == JOBS_IN and use.verb not in ("get", "list")}
    assert {use.resource for use in touching} >= {"jobs", "pods", "pods/exec", "checkpointrequests"}
    assert {(use.verb, use.resource) for use in touching if use.resource != "events"} & cluster_wide == set()
    assert not any(resource.startswith(f"{PODS.plural}/") for _, resource in cluster_wide)
