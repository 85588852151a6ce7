"""Least privilege, by the audit log: nothing that the controller does is refused, and no right of it is unused.

tests/unit/deploy/test_rights.py compares the same rules with what each part does on the fake API server.
"""

import json

import pytest
import yaml

from tests.support import kwok_pool
from tests.support.kwok_world import JOB_LABEL, SPACE
from tests.support.repository import ROOT
from tests.support.rights import covers, granted
from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    DRIVER_IMAGES,
    GPU_STACKS,
    NODE_UPGRADES,
    NODES,
    PODS,
    UPGRADE_PLANS,
)
from upgrader.core.model.phases import PlanPhase, RequestPhase
from upgrader.images.publish import push_driver
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import CRDS
from upgrader_dev.demo import manifests, waiting
from upgrader_dev.demo.controller import NAMESPACE, USER
from upgrader_dev.demo.scenes import run_command
from upgrader_dev.devcluster import KwokSpec
from upgrader_dev.simulated.apiserver.cluster import Use

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

NODE_COUNT = 3
SECONDS = 600
NEXT_KERNEL = "6.1.0-50-amd64"
REFUSED = 403
CREATED = 201
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"

GANG_KINDS = (
    "apps/statefulsets",
    "batch.volcano.sh/jobs",
    "jobset.x-k8s.io/jobsets",
    "kubeflow.org/mpijobs",
    "kueue.x-k8s.io/workloads",
    "leaderworkerset.x-k8s.io/leaderworkersets",
    "ray.io/rayjobs",
    "trainer.kubeflow.org/trainjobs",
)
NOT_HERE = {
    "the gang here is a Job": {f"{verb} {kind}" for verb in ("get", "patch") for kind in GANG_KINDS},
    "no gang here is stopped by Volcano": {f"{verb} bus.volcano.sh/commands" for verb in ("get", "create", "delete")},
    "nothing runs in a pod of kwok, so that the gang is asked by its API objects": {
        *(f"{verb} /pods/exec" for verb in ("get", "create")),
        *(f"{verb} /pods/proxy" for verb in ("get", "create", "delete")),
    },
    "nobody orders a pod away": {"delete /pods in default"},
    "no gang leaves a request unanswered": {"delete gpu-upgrader.io/checkpointrequests"},
    "no node comes up with a kernel that has no image": {
        "create gpu-upgrader.io/driverimages",
        "delete gpu-upgrader.io/driverimages",
    },
    "people make the plans": {"create gpu-upgrader.io/upgradeplans"},
    "no pod holds GPUs by a claim, or writes checkpoints to one": {
        "list resource.k8s.io/resourceclaims",
        "list /persistentvolumeclaims",
    },
    "nodeFeatures is External": {"list nfd.k8s-sigs.io/nodefeatures"},
    "every operand starts, and every kubelet admits": {"list /events", "delete /pods in gpu-upgrader-system"},
    "no node goes while it is upgraded": {"delete batch/jobs"},
    "no upgrade and no revision is older than what is kept": {
        "delete gpu-upgrader.io/nodeupgrades",
        "delete apps/controllerrevisions",
    },
    "RayClusters are not served": {"list ray.io/rayclusters"},
}
"""Rights for what does not happen here, by the reason; tests/unit/deploy/test_rights.py shows each of them in use."""


@pytest.fixture(scope="module")
def fleet(start_cluster):
    spec = KwokSpec(count=NODE_COUNT, prefix="fleet", labels=manifests.POOL, kernel=kwok_pool.KERNEL, taints=())
    reads = f"system:serviceaccounts:{NAMESPACE}"
    return start_cluster("rights", boxes=0, loopback=True, kwok=spec, audit_reads_of=reads)


async def test_no_request_is_refused_and_no_right_is_unused(fleet, tmp_path):
    async with await KubeCluster.connect(str(fleet.kubeconfig)) as kube:
        for file in sorted((ROOT / "tests/cluster/crds").glob("*.yaml")):
            await kube.apply(CRDS, yaml.safe_load(file.read_text()))
        pool = await kwok_pool.set_up(fleet, tmp_path, kube)
        exporter = {"management": "Managed", "image": pool.images["1.0.0"]}
        pool.fields = {"monitoring": exporter, "historyLimit": 1}
        async with pool.world:
            pool.keep_running()
            try:
                await _lived_through(pool)
            finally:
                await waiting.in_thread(pool.controller.stop)
    entries = [one for one in map(json.loads, _lines(fleet.audit_log)) if one["user"]["username"] == USER]
    refused = [one["requestURI"] for one in entries if one["responseStatus"]["code"] == REFUSED]
    assert refused == []
    uses = {use for one in entries if "objectRef" in one for use in _uses(one)}
    excused = set().union(*NOT_HERE.values())
    unused = {
        f"{right.verb} {right.group}/{right.resource} in {namespace}"
        for namespace, right in granted()
        if not any(covers(namespace, right, use) for use in uses)
    }
    assert {one for one in unused if not {one, one.rpartition(" in ")[0]} & excused} == set()
    assert {one for one in excused if not any(one in {each, each.rpartition(" in ")[0]} for each in unused)} == set()


async def _lived_through(pool):
    await pool.install("1.0.0", SECONDS)
    await pool.world.train("gang", 2)
    gang = pool.world.gangs["gang"]
    await waiting.wait_until(lambda: gang.step > 3, seconds=SECONDS, what="the gang trains")
    await waiting.in_thread(pool.cluster.api.create, DEPLOYMENTS, _server())
    await pool.plan("up", "2.0.0")
    assert (await pool.over("up", SECONDS)).status.phase is PlanPhase.COMPLETED
    await waiting.in_thread(pool.cluster.api.delete, f"{DEPLOYMENTS}/server")
    await _all_ready(pool)
    await _repaired(pool)
    await pool.plan("down", "1.0.0")

    async def stopped():
        pool.keep_running()
        found = [one for one in await pool.kube.list(CHECKPOINT_REQUESTS) if one.spec.plan == "down"]
        return any(one.status.phase is RequestPhase.STOPPED for one in found)

    await waiting.poll_until(stopped, SECONDS, "the gang is stopped")
    await run_command(pool.cluster, print, "abort", "down")
    assert (await pool.over("down", SECONDS)).status.phase is PlanPhase.ABORTED

    async def pruned():
        pool.keep_running()
        return await pool.kube.get(UPGRADE_PLANS, "up") is None

    await waiting.poll_until(pruned, SECONDS, "the controller has deleted the plan beyond the history limit")
    await run_command(pool.cluster, print, "uninstall", "--auto-approve", "--timeout", str(SECONDS))
    assert await pool.kube.list(UPGRADE_PLANS) == []
    assert (gang.lost, await pool.leftovers()) == (0, [])


def _server():
    """What is no gang, on the node that the gang leaves: it is evicted."""
    container = {"name": "web", "image": "web", "resources": {"limits": {manifests.RESOURCE: "8"}}}
    labels = {"app": "server"}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    selector = {"matchLabels": labels}
    return {"metadata": {"name": "server"}, "spec": {"replicas": 1, "selector": selector, "template": template}}


async def _repaired(pool):
    """A node without a gang comes up with another kernel."""
    image = await waiting.in_thread(
        push_driver, pool.cluster.registry, version="2.0.0", kernel=NEXT_KERNEL, progress=print
    )
    await pool.kube.apply(DRIVER_IMAGES, manifests.driver_image("2.0.0", NEXT_KERNEL, image))
    used = {one.spec.node_name for one in await pool.kube.list(PODS, SPACE, labels=JOB_LABEL)}
    idle = next(one.metadata.name for one in await pool.kube.list(NODES) if one.metadata.name not in used)
    booted = {"status": {"nodeInfo": {"kernelVersion": NEXT_KERNEL, "bootID": "another"}}}
    await waiting.in_thread(pool.cluster.api.patch, f"{NODES.path(idle)}/status", booted)

    async def upgraded():
        pool.keep_running()
        found = await pool.kube.list(NODE_UPGRADES)
        return any(one.spec.reason == "Repair" and one.status.phase == "Succeeded" for one in found)

    await waiting.poll_until(upgraded, SECONDS, "the node is in service on its other kernel")
    await _all_ready(pool)


async def _all_ready(pool):
    await pool.eventually(GPU_STACKS, kwok_pool.STACK, lambda one: one.status.ready == NODE_COUNT, SECONDS)


def _lines(log):
    return log.read_text(encoding="utf-8").splitlines()


def _uses(entry):
    ref = entry["objectRef"]
    resource = "/".join(part for part in (ref.get("resource", ""), ref.get("subresource", "")) if part)
    # An apply that makes the object needs the right to create it, too; the log has it as a patch.
    verbs = {entry["verb"]} | ({"create"} if entry["responseStatus"]["code"] == CREATED else set())
    return [Use(verb, ref.get("apiGroup", ""), resource, ref.get("namespace", "")) for verb in verbs]
