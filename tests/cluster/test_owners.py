"""Stopping and restarting owners on a real API server, by the product's own request.

Jobs and StatefulSets are run by the cluster's own controllers, JobSets and Kueue's Workloads by stand-ins
(tests/support/standin.py) whose pods the Job controller makes, on nodes of kwok. The other kinds are only patched:
the API server judges the patches by CRDs with their projects' field names, types and rules (tests/cluster/crds).
"""

import uuid

import msgspec
import pytest
import yaml

from tests.support.discovered import discovered
from tests.support.gangs_on_api import LiveGang, context_of, pods_spec
from tests.support.owners import IDS, spec_of
from tests.support.repository import ROOT
from tests.support.standin import (
    JOBS,
    JOBSET_LABEL,
    JOBSETS,
    QUEUE_LABEL,
    WORKLOADS,
    StandIn,
    condition,
    meta_of,
    resource,
)
from tests.support.waiting import eventually
from upgrader.api.resources import CHECKPOINT_REQUESTS, COMMANDS, NAMESPACES, PDBS, PODS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.api.v1alpha1.checkpoint_request import OwnerRef
from upgrader.core.errors import ConfigurationError, ConflictError
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.node_upgrade.upgrade_state import OtherPod
from upgrader.core.patches import value_at, values_at
from upgrader.core.workloads.owner_kinds import OWNERS, Switch, owner_kind
from upgrader.core.workloads.placement import MAINTENANCE, Placement, is_steerable
from upgrader.core.workloads.suspend_patches import STOPPED, record_of
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import CRDS, install_kinds
from upgrader.reconcile.checkpoint_request import live_owners
from upgrader.reconcile.checkpoint_request.live_owners import resource_of
from upgrader.reconcile.node_upgrade import evictions
from upgrader_dev.devcluster import KwokSpec

pytestmark = [pytest.mark.cluster, pytest.mark.gate, pytest.mark.timeout(300)]

N, R = NodePhase, RequestPhase
STATEFUL_SETS = resource("apps/v1", "StatefulSet")
QUOTA = 16


@pytest.fixture(scope="module")
def fleet(start_cluster):
    """Four nodes of eight GPUs each; kwok keeps them and their pods."""
    return start_cluster("owners", boxes=0, kwok=KwokSpec(count=4))


@pytest.fixture
async def live(fleet):
    """Our client as admin; our kinds and those of the other projects are served."""
    async with await KubeCluster.connect(str(fleet.kubeconfig)) as connected:
        await install_kinds(connected)
        for file in sorted((ROOT / "tests/cluster/crds").glob("*.yaml")):
            await connected.apply(CRDS, yaml.safe_load(file.read_text()))
        kinds = [resource_of(row, row.api_version) for row in OWNERS]
        await eventually(lambda: discovered(str(fleet.kubeconfig), kinds), seconds=120)
        yield connected


@pytest.fixture
async def space(live):
    made = await live.create(NAMESPACES, {"metadata": {"name": f"t{uuid.uuid4().hex[:10]}"}})
    yield made.metadata.name
    await live.delete(NAMESPACES, made.metadata)


def job_spec(**changes):
    return {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "template": {"spec": pods_spec()},
        **changes,
    }


async def start(live, space, kind, name="train"):
    """A gang of two members of that kind of owner, running."""
    meta = {"name": name, "namespace": space}
    if kind == "Job":
        made = await live.create(JOBS, {"metadata": meta, "spec": job_spec()})
        gang = LiveGang(live, JOBS, made, f"batch.kubernetes.io/job-name={name}", 2)
    elif kind == "StatefulSet":
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": pods_spec("Always")}
        spec = {"replicas": 2, "serviceName": name, "podManagementPolicy": "Parallel", "template": template}
        made = await live.create(
            STATEFUL_SETS, {"metadata": meta, "spec": spec | {"selector": {"matchLabels": labels}}}
        )
        gang = LiveGang(live, STATEFUL_SETS, made, f"app={name}", 2)
    elif kind == "JobSet":
        spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": job_spec(parallelism=1)}}]}
        spec["replicatedJobs"][0]["template"]["spec"]["completions"] = 1
        made = await live.create(JOBSETS, {"metadata": meta, "spec": spec})
        gang = LiveGang(live, JOBSETS, made, f"{JOBSET_LABEL}={name}", 2)
    else:
        await live.create(
            JOBS, {"metadata": meta | {"labels": {QUEUE_LABEL: "team-a"}}, "spec": job_spec(suspend=True)}
        )
        made = await eventually(lambda: live.get(WORKLOADS, f"job-{name}", space))
        gang = LiveGang(live, WORKLOADS, made, f"batch.kubernetes.io/job-name={name}", 2)
    return gang


OFF = {
    "Job": (("spec", "suspend"), True, False),
    "StatefulSet": (("spec", "replicas"), 0, 2),
    "JobSet": (("spec", "suspend"), True, None),
    "Workload": (("spec", "active"), False, True),
}


@pytest.mark.parametrize("kind", OFF)
async def test_a_gang_is_stopped_once_and_comes_back_as_it_was(live, space, kind):
    path, off, on = OFF[kind]
    async with StandIn(live, space, gpus=QUOTA):
        gang = await start(live, space, kind)
        await gang.running()
        before = (await gang.owner())["spec"]
        await gang.stopped()
        stopped = await gang.owner()
        record = record_of(stopped["metadata"]["annotations"])
        assert (value_at(stopped, path), record.previous, record.request) == (off, on, gang.request.metadata.name)
        assert await gang.pods() == []
        pods = await gang.restored()
        after = await gang.owner()
        assert gang.stopped_mark(after) is None
        assert len(gang.seen) == 4, "two members before the stop, two after it"
        row = owner_kind(gang.resource.kind, gang.resource.api_version)
        steered = is_steerable(row, await live.version())
        assert steered == (kind in {"Job", "StatefulSet"})
        for pod in pods:
            raw = await live.get(PODS_WHOLE, pod.metadata.name, space)
            keys = {one["key"]: one.get("value") for one in raw["spec"]["tolerations"]}
            assert keys.get(MAINTENANCE) == ("c-1" if steered else None)
            assert ("gpu-upgrader.io/revision" in str(raw["spec"].get("affinity", {}))) == steered
        assert without_steering(row, after)["spec"] == before


PODS_WHOLE = msgspec.structs.replace(JOBS, group="", kind="Pod", plural="pods")


def without_steering(row, body):
    for path in row.templates:
        for template in values_at(body, path):
            template["spec"].pop("affinity", None)
            kept = [one for one in template["spec"]["tolerations"] if one["key"] != MAINTENANCE]
            template["spec"]["tolerations"] = kept
    return body


async def test_a_queue_that_gives_the_place_away_is_waited_for_and_asked_for_once(live, space):
    async with StandIn(live, space, gpus=QUOTA):
        gang = await start(live, space, "Workload")
        await gang.running()
        other = await start(live, space, "Workload", "other")
        await gang.stopped()
        assert len(await other.running()) == 2, "the freed quota goes to them"
        await gang.until(R.RESTARTING, N.RELEASING, answering=None)

        async def reason():
            await gang.step(N.RELEASING, answering=None)
            return gang.request.status.reason

        await eventually(reason, lambda said: said == "WaitingForQueue")
        assert "its queue has not admitted it" in gang.request.status.message
        waiting = await gang.owner()
        assert (waiting["spec"]["active"], gang.stopped_mark(waiting)) == (True, None)
        late = {"status": {"deadline": "2026-01-01T00:00:00Z"}}
        gang.request = await live.merge(CHECKPOINT_REQUESTS, gang.request.metadata, late, "status")
        await gang.until(R.ENDED, N.RELEASING, answering=None)
        assert gang.request.status.reason == "NotRestored"
        assert "its queue has not admitted it" in gang.request.status.message
        job = await live.get(JOBS, "other", space)
        await live.delete(JOBS, meta_of(job))
        await gang.running()
        assert len(gang.seen) == 4, "it came back by itself when its turn came"


async def test_a_gang_that_its_user_resumes_is_not_stopped_again(live, space):
    gang = await start(live, space, "StatefulSet")
    await gang.stopped()
    await by_a_person(gang, {"spec": {"replicas": 2}})
    await gang.running()
    await gang.until(R.RESTORED, N.UPGRADING, answering=101)
    after = await gang.owner()
    assert (after["spec"]["replicas"], gang.stopped_mark(after)) == (2, None)
    assert len(gang.seen) == 4


async def test_an_owner_that_another_client_suspends_stays_suspended(live, space):
    gang = await start(live, space, "Job")
    await gang.parked()
    await by_a_person(gang, {"spec": {"suspend": True}})
    await gang.until(R.ENDED, N.DRAINING, answering=None)
    assert gang.request.status.reason == "SuspendedByOthers"
    after = await gang.owner()
    assert (after["spec"]["suspend"], gang.stopped_mark(after)) == (True, None)


async def test_a_budget_that_allows_nothing_is_asked_again_right_before_the_stop(live, space):
    gang = await start(live, space, "StatefulSet")
    await gang.parked()
    budget = await live.create(
        PDBS,
        {
            "metadata": {"name": "never", "namespace": space},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "train"}}},
        },
    )
    await gang.until(R.STOPPING, N.DRAINING)
    for _ in range(3):
        assert await gang.step(N.DRAINING) is R.STOPPING
    assert gang.request.status.reason == "DisruptionForbidden"
    assert "PodDisruptionBudget never does not allow its disruption" in gang.request.status.message
    assert gang.stopped_mark(await gang.owner()) is None
    await live.delete(PDBS, budget.metadata)
    await gang.until(R.STOPPED, N.DRAINING)


@pytest.mark.parametrize("row", OWNERS, ids=IDS)
async def test_the_api_server_takes_the_patches_of_every_row(live, space, row):
    """Off with the record in one patch, on again in one; what was there before comes back."""
    resource = resource_of(row, row.api_version)
    made = await live.create(resource, {"metadata": {"name": "train", "namespace": space}, "spec": spec_of(row)})
    reference = OwnerRef(kind=row.kind, api_version=row.api_version, name="train", uid=made["metadata"]["uid"])
    context, request = context_of(live), asked(space)
    before = (await live_owners.read_owner(context, reference, space)).present["spec"]

    off = await acted(context, reference, space, lambda owner: live_owners.suspend_owner(context, owner, request))
    record = record_of(off.meta.annotations)
    previous = value_at(made, row.field) if row.field else None
    assert (record.plan, record.request, record.previous) == ("up", request.metadata.name, previous)
    if row.switch is Switch.COMMAND:
        assert [one["action"] for one in await ordered(live, space)] == ["AbortJob"]
        await acted(context, reference, space, lambda owner: live_owners.suspend_owner(context, owner, request))
        assert [one["action"] for one in await ordered(live, space)] == ["AbortJob"], "made once"
    else:
        assert value_at(off.present, row.field) == row.off_value

    placement = Placement(left_behind=("old",), group="c-1") if is_steerable(row, await live.version()) else None
    name = request.metadata.name
    on = await acted(context, reference, space, lambda owner: live_owners.resume_owner(context, owner, name, placement))
    assert STOPPED not in on.meta.annotations
    templates = [one for path in row.templates for one in values_at(on.present, path)]
    assert all([one["value"] for one in each["spec"]["tolerations"]] == ["c-1"] for each in templates)
    if row.switch is Switch.COMMAND:
        assert [one["action"] for one in await ordered(live, space)] == ["ResumeJob"], "the other was taken back"
    assert plain(row, on.present)["spec"] == plain(row, {"spec": before})["spec"]


async def by_a_person(gang, patch):
    """A person's change, made again where a controller wrote in between."""

    async def attempt():
        try:
            return await gang.api.merge(gang.resource, meta_of(await gang.owner()), patch)
        except ConflictError:
            return None

    await eventually(attempt)


async def acted(context, reference, space, act):
    """The owner after an act, which is made again as the product does: where its controller wrote in between, and
    where a template cannot be changed yet, since the Job controller has not said that the Job is suspended.
    """

    async def attempt():
        try:
            await act(await live_owners.read_owner(context, reference, space))
        except (ConflictError, ConfigurationError):
            return None
        return await live_owners.read_owner(context, reference, space)

    return await eventually(attempt)


def asked(space):
    body = {"metadata": {"name": f"r-{space}", "namespace": space}, "spec": {"plan": "up"}}
    base = yaml.safe_load(
        "{gang: g, owner: {kind: Job, name: train, uid: u}, members: [], requestId: 1, "
        "askedAt: '2026-11-21T09:00:00Z', parkSeconds: 60}"
    )
    return msgspec.convert({**body, "spec": base | body["spec"]}, CheckpointRequest)


async def ordered(live, space):
    raw = msgspec.structs.replace(COMMANDS, type=dict)
    return list(await live.list(raw, space))


def plain(row, body):
    """Without tolerations and affinity, which our own templates have none of here."""
    whole = msgspec.json.decode(msgspec.json.encode(body))
    for path in row.templates:
        for template in values_at(whole, path):
            template["spec"].pop("tolerations", None)
            template["spec"].pop("affinity", None)
    return whole


async def test_a_job_whose_quota_is_gone_says_so(live, space):
    """The stand-in sets what Kueue sets: no quota, no pods."""
    async with StandIn(live, space, gpus=8):
        gang = await start(live, space, "Workload")
        waiting = await eventually(gang.owner, lambda one: condition(one, "QuotaReserved"))
        assert condition(waiting, "QuotaReserved")["status"] == "False"
        assert await gang.pods() == []


# ------------------------------------------------------------------------------------------------------ evictions

DEPLOYMENTS = msgspec.structs.replace(JOBS, group="apps", kind="Deployment", plural="deployments")


async def serving(live, space):
    """A Deployment of two pods, each of which is evicted alone."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pods_spec("Always")}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    await live.create(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": space}, "spec": spec})

    async def look():
        return [one for one in await live.list(PODS, space, labels="app=web") if one.status.phase == "Running"]

    pods = await eventually(look, lambda found: len(found) == 2, 120)
    return [OtherPod(name=one.metadata.name, namespace=space, uid=one.metadata.uid, evictable=True) for one in pods]


async def budget(live, space, name, allowed, **spec):
    """A budget, as soon as the cluster's controller has counted for it."""
    body = {
        "metadata": {"name": name, "namespace": space},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }
    made = await live.create(PDBS, body)

    async def look():
        found = await live.get(PDBS, name, space)
        return found.status.disruptions_allowed

    await eventually(look, lambda count: count == allowed, 120)
    return made


async def test_pods_of_a_deployment_are_evicted_as_their_budget_allows(live, space):
    pods = await serving(live, space)
    context = context_of(live)
    one = await budget(live, space, "one", 0, maxUnavailable=0)
    refusal = await evictions.evict_pods(context, pods)
    assert "PodDisruptionBudget does not allow its eviction now" in refusal.message
    assert refusal.message.endswith("(and 1 more)")
    assert 1 <= refusal.seconds <= evictions.LONGEST_SECONDS
    assert [await gone(live, pod) for pod in pods] == [False, False]

    await live.delete(PDBS, one.metadata)
    await budget(live, space, "two", 2, maxUnavailable=2)
    assert await evictions.evict_pods(context, pods) is None
    for pod in pods:
        await eventually(lambda pod=pod: gone(live, pod), seconds=120)
    assert await evictions.evict_pods(context, pods) is None, "who is gone is no refusal"


async def gone(live, pod):
    found = await live.get(PODS, pod.name, pod.namespace)
    return found is None or found.metadata.uid != pod.uid


async def test_a_pod_under_two_budgets_is_refused_with_both_their_names(live, space):
    pods = await serving(live, space)
    await budget(live, space, "one", 1, maxUnavailable=1)
    await budget(live, space, "two", 2, maxUnavailable=2)
    refusal = await evictions.evict_pods(context_of(live), pods[:1])
    assert refusal == evictions.EvictionRefusal(
        message=f"pod {space}/{pods[0].name}: PodDisruptionBudgets one and two both select it, so the API "
        "server never evicts it; delete one of them",
        seconds=evictions.LONG_SECONDS,
    )
