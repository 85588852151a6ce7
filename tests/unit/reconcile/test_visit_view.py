"""Other pods on a node that is visited: who may be evicted there."""

import msgspec
import pytest

from tests.support.fleet import RESOURCE
from tests.support.manifests import changed, node_upgrade
from tests.support.rig import Rig
from upgrader.api.resources import NODES, PODS, owner_resource
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.declarations import Declared
from upgrader.core.owners import owner_kind
from upgrader.reconcile.visit_view import read_visit

METHOD = {"gpu-upgrader.io/checkpoint-method": "file"}
VETO = {"karpenter.sh/do-not-disrupt": "true"}
NOTHING = {}


async def evictable(rig: Rig, spaces):
    node = rig.cluster.store.find(NODES, "gpu-0")
    manifest = changed(node_upgrade(), "spec.node", {"name": "gpu-0", "uid": node["metadata"]["uid"]})
    manifest = changed(manifest, "spec.target.resourceName", RESOURCE)
    manifest["metadata"]["creationTimestamp"] = "2026-11-21T09:00:00Z"
    upgrade = msgspec.convert(manifest, NodeUpgrade)
    return [pod.evictable for pod in (await read_visit(rig.context, upgrade, frozenset(), spaces)).others]


@pytest.mark.parametrize(
    ("pod", "owner", "space", "expected"),
    {
        "nobody declares anything": (NOTHING, NOTHING, NOTHING, True),
        "the pod does": (METHOD, NOTHING, NOTHING, False),
        "its owner does (law 1)": (NOTHING, METHOD, NOTHING, False),
        "its namespace does": (NOTHING, NOTHING, METHOD, False),
        "the pod forbids it": (VETO, NOTHING, NOTHING, False),
        "its owner forbids it": (NOTHING, VETO, NOTHING, False),
    }.values(),
)
async def test_pods_that_declare_a_method_or_a_veto_in_any_place_are_never_evicted_unasked(pod, owner, space, expected):
    rig = Rig()
    rig.fleet.node("gpu-0")
    row = owner_kind("StatefulSet", "apps/v1")
    meta = {"name": "db", "namespace": "ml", "annotations": owner}
    made = rig.cluster.store.put(owner_resource(row), {"metadata": meta})
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": made["metadata"]["uid"]}
    references = [{**reference, "controller": True}]
    body = {"name": "db-0", "namespace": "ml", "annotations": pod, "ownerReferences": references}
    container = {"name": "main", "resources": {"limits": {RESOURCE: "1"}}}
    rig.cluster.store.put(PODS, {"metadata": body, "spec": {"nodeName": "gpu-0", "containers": [container]}})
    spaces = {"ml": Declared(method="file")} if space else {}
    assert await evictable(rig, spaces) == [expected]
