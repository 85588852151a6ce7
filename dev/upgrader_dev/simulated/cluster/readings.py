"""What pods on nodes of the simulated cluster read of their node, as the kubelet carries it: how a container ended."""

import functools
import json

from upgrader.api import names
from upgrader.api.resources import NODES
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore


def features_read(node: Object, **changes: object) -> Object:
    """How a reading ends that reports what the node's object says of itself."""
    info = node["status"]["nodeInfo"]
    report = _make_report(info["bootID"], info["kernelVersion"])
    return {"exitCode": 0, "message": json.dumps({**json.loads(report), **changes}) if changes else report}


@functools.lru_cache(maxsize=4096)
def _make_report(boot: str, kernel: str) -> str:
    report = {
        "bootId": boot,
        "uptime": 10.0,
        "kernel": kernel,
        "osId": "debian",
        "osVersion": "13",
        "pci": ["0302_10de"],
    }
    return json.dumps(report)


def reads_at_start(pod: Object) -> bool:
    """Whether a pod reads at its start, as the simulated vendor's feature discovery does."""
    return any(one["name"] == "read" for one in pod["spec"].get("initContainers", []))


def loaded_read(store: ObjectStore, pod: Object, gpus: int) -> Object | None:
    """How a reading ends of which driver is loaded, by the driver's pod there; None: it waits for that."""
    node = pod["spec"]["nodeName"]
    drivers = [
        one["metadata"]["annotations"][names.ANNOTATION_READABLE]
        for one in store.on_node(node)
        if one["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "driver"
        and one["status"]["phase"] == "Running"
    ]
    if not drivers:
        return None
    boot = store.read(NODES, node)["status"]["nodeInfo"]["bootID"]
    said = {"bootId": boot, "uptime": 10.0, "version": drivers[0].split()[1], "devices": gpus}
    return {"exitCode": 0, "message": json.dumps(said)}
