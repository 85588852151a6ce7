"""Readings of pods on the nodes of the simulated cluster, as the terminated state of a container."""

import functools
import json

from upgrader.api import names
from upgrader.api.resources import NODES
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore


def read_node_features(node: Object, **changes: object) -> Object:
    """The terminated state of a reading of node features, from the Node object."""
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
    return any(container["name"] == "read" for container in pod["spec"].get("initContainers", []))


def read_loaded_driver(store: ObjectStore, pod: Object, gpus: int) -> Object | None:
    """The terminated state of a reading of the loaded driver, from the driver's pod; None: there is no such pod yet."""
    node = pod["spec"]["nodeName"]
    drivers = [
        pod_value["metadata"]["annotations"][names.ANNOTATION_READABLE]
        for pod_value in store.pods_on_node(node)
        if pod_value["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "driver"
        and pod_value["status"]["phase"] == "Running"
    ]
    if not drivers:
        return None
    boot = store.read(NODES, node)["status"]["nodeInfo"]["bootID"]
    report = {"bootId": boot, "uptime": 10.0, "version": drivers[0].split()[1], "devices": gpus}
    return {"exitCode": 0, "message": json.dumps(report)}
