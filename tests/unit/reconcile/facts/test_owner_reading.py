"""Owners of pods as they come over the wire."""

import msgspec
import pytest

from tests.support.observed import owned, owner, work
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import PODS, owner_resource
from upgrader.core.errors import UnreachableError
from upgrader.core.model.fleet import Owner
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations
from upgrader.core.workloads.owner_kinds import BETWEEN, DECLARING, OWNERS, ReadKind
from upgrader.reconcile.facts.object_cache import ObjectCache
from upgrader.reconcile.facts.owner_reading import READ, declared_above, read_works
from upgrader_dev.simulated.apiserver.cluster import FakeCluster

STOPPED = "gpu-upgrader.io/stopped"
CRON = Owner(kind="CronJob", name="nightly", uid="u", api_version="batch/v1")
OTHER = Owner(kind="Workflow", name="flow", uid="v", api_version="argoproj.io/v1alpha1")
TABLE = {
    "nothing is said": (owned(), work()),
    "spec and status as they are": (
        owned(spec={"parallelism": 2}, status={"succeeded": 1}),
        work(spec={"parallelism": 2}, status={"succeeded": 1}),
    ),
    "with our record": (
        owned(annotations={STOPPED: '{"plan": "pool-a-1", "previous": false}'}),
        work(stopped_by="pool-a-1"),
    ),
    "a record that we cannot read is one all the same": (
        owned(annotations={STOPPED: "by hand"}),
        work(stopped_by="by hand"),
    ),
    "of others, the first of which controls it": (
        owned(by=(CRON, OTHER)),
        work(controller=CRON, owned_by=("u", "v")),
    ),
    "in a queue of Kueue": (
        owned(labels={"kueue.x-k8s.io/queue-name": "q"}),
        work(labels={"kueue.x-k8s.io/queue-name": "q"}),
    ),
    "what it declares": (
        owned(
            annotations={
                "gpu-upgrader.io/checkpoint-method": " file ",
                "gpu-upgrader.io/checkpoint-timeout": "5m",
                "gpu-upgrader.io/checkpoint-container": "main",
                "karpenter.sh/do-not-disrupt": "true",
            }
        ),
        work(
            declared=CheckpointAnnotations(
                method="file", timeout="5m", container="main", veto="karpenter.sh/do-not-disrupt=true"
            )
        ),
    ),
    "safe-to-evict only forbids where it says false": (
        owned(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}),
        work(),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), TABLE.values(), ids=TABLE.keys())
def test_what_is_seen_in_an_owner(seen, expected):
    assert seen == expected


def put(cluster, kind: ReadKind, name: str, version: str = "") -> None:
    cluster.store.put(
        owner_resource(kind, version), {"metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}"}}
    )


def of_kind(kind: str, group: str) -> ReadKind:
    return next(row for row in READ if (row.kind, row.group) == (kind, group))


async def test_kinds_that_are_not_installed_have_no_objects_and_are_not_asked_for():
    cluster = FakeCluster()
    put(cluster, of_kind("Job", "batch"), "train")
    assert await read_works(cluster, ObjectCache()) == (work(),)
    built_in = {"jobs", "statefulsets", "replicasets", "deployments", "daemonsets"}
    assert {use.resource for use in cluster.uses} == built_in


async def test_every_kind_is_read_that_is_served():
    cluster = FakeCluster()
    cluster.install(*OWNERS, *BETWEEN, *DECLARING)
    for number, kind in enumerate(READ):
        put(cluster, kind, f"o-{number}")
    assert {one.owner for one in await read_works(cluster, ObjectCache())} == {
        owner(kind.kind, f"o-{number}", kind.api_version) for number, kind in enumerate(READ)
    }


async def test_another_version_is_read_where_the_known_one_is_not_served():
    cluster = FakeCluster()
    workloads = of_kind("Workload", "kueue.x-k8s.io")
    cluster.installed = {(workloads.group, workloads.plural): ("v1beta2", "v1alpha9")}
    put(cluster, workloads, "w", "v1beta2")
    assert [one.owner for one in await read_works(cluster, ObjectCache())] == [
        owner("Workload", "w", "kueue.x-k8s.io/v1beta2")
    ]


async def test_nothing_is_guessed_where_a_list_does_not_come():
    cluster = FakeCluster()
    cluster.reachable = False
    with pytest.raises(UnreachableError):
        await read_works(cluster, ObjectCache())


def controlled(kind, name, by=None, annotations=None):
    references = []
    if by is not None:
        references = [{"kind": by[0].kind, "name": by[1], "uid": f"uid-{by[1]}", "controller": True}]
        references[0]["apiVersion"] = by[0].api_version
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": annotations or {}}
    return {"metadata": {**meta, "ownerReferences": references}}


SETS = of_kind("StatefulSet", "apps")
REPLICAS, DEPLOYMENTS = of_kind("ReplicaSet", "apps"), of_kind("Deployment", "apps")
SERVED = of_kind("LeaderWorkerSet", "leaderworkerset.x-k8s.io")
POD = ReadKind(kind="Pod", group="", version="v1", plural="pods")
METHOD = {"gpu-upgrader.io/checkpoint-method": "file"}


async def test_what_owners_of_one_pod_declare_is_read_up_to_the_topmost():
    cluster = FakeCluster()
    cluster.install(SERVED)
    cluster.store.put(owner_resource(SERVED), controlled(SERVED, "x", annotations=METHOD))
    cluster.store.put(owner_resource(SETS), controlled(SETS, "x-leaders", (SERVED, "x")))
    cluster.store.put(PODS, controlled(POD, "x-0", (SETS, "x-leaders")) | {"spec": {"nodeName": "elsewhere"}})
    cluster.store.put(owner_resource(SETS), controlled(SETS, "x-0-workers", (POD, "x-0")))
    worker = msgspec.convert(controlled(POD, "x-0-1", (SETS, "x-0-workers")), Pod)
    assert await declared_above(cluster, worker) == CheckpointAnnotations(method="file")


async def test_what_a_deployment_declares_is_read_through_its_replica_set():
    cluster = FakeCluster()
    cluster.store.put(owner_resource(REPLICAS), controlled(REPLICAS, "web-1", (DEPLOYMENTS, "web")))
    cluster.store.put(owner_resource(DEPLOYMENTS), controlled(DEPLOYMENTS, "web", annotations=METHOD))
    pod = msgspec.convert(controlled(POD, "web-1-a", (REPLICAS, "web-1")), Pod)
    assert await declared_above(cluster, pod) == CheckpointAnnotations(method="file")


async def test_an_owner_that_is_gone_or_unknown_declares_nothing():
    cluster = FakeCluster()
    rollouts = ReadKind(kind="Rollout", group="argoproj.io", version="v1alpha1", plural="rollouts")
    for kind, name in ((SETS, "gone"), (REPLICAS, "web"), (rollouts, "web")):
        assert (
            await declared_above(cluster, msgspec.convert(controlled(POD, "p", (kind, name)), Pod))
            == CheckpointAnnotations()
        )
