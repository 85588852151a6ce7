"""ResourceClaims and pods that hold devices by them, as the API server has them."""

from typing import Any

from upgrader.api.resources import PODS, owner_resource
from upgrader.reconcile.facts.device_claims import CLAIM
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore

NVIDIA = "gpu.nvidia.com"
CLAIMS = owner_resource(CLAIM)


def allocated(*drivers: str) -> Object:
    """A claim's body whose devices are of these drivers."""
    results = [{"driver": driver, "pool": "gpu-0", "device": f"d-{place}"} for place, driver in enumerate(drivers)]
    return {"status": {"allocation": {"devices": {"results": results}}}}


def claim(store: ObjectStore, name: str, body: Object, version: str = CLAIM.version) -> None:
    """A ResourceClaim in the namespace of the rig's jobs."""
    store.put(owner_resource(CLAIM, version), {"metadata": {"name": name, "namespace": "default"}, **body})


def claiming(store: ObjectStore, name: str, *, node: str, of: str = "", **status: Any) -> None:
    """A pod that nobody makes again and that holds a claim, by its name or as `status` says."""
    named = [{"name": "gpus", "resourceClaimName": of}] if of else []
    pod = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "main"}], "resourceClaims": named},
        "status": {"phase": "Running", **status},
    }
    store.put(PODS, pod)
