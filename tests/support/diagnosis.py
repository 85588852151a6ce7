"""What a cluster looked like when a test failed: where CI keeps nothing but what was printed, this is all there is."""

from collections.abc import Iterator
from typing import Any

from upgrader.core.errors import UpgraderError
from upgrader.process.places import last_lines
from upgrader_dev.devcluster import DevCluster, VirtualNode

EVENTS = 40
LOG_LINES = 25
ENDED = ("Succeeded",)


def report(cluster: DevCluster) -> str:
    """Pods that are not well, the latest events, and the logs and processes of the nodes that these pods are on."""
    return "\n".join(_lines(cluster))


def _lines(cluster: DevCluster) -> Iterator[str]:
    try:
        pods = [one for one in _items(cluster, "/api/v1/pods") if not _well(one)]
        events = _items(cluster, "/api/v1/events")
    except UpgraderError as error:
        yield f"the API server says nothing: {error}"
        return
    yield f"{len(pods)} pod(s) not well"
    yield from map(_pod, pods)
    for one in sorted(events, key=lambda one: str(one.get("lastTimestamp")))[-EVENTS:]:
        about = one["involvedObject"]
        said = f"{one['reason']} {one.get('message', '')[:300]}"
        yield f"{one.get('lastTimestamp')} {about['kind']} {about['name']}: {said}"
    on = {one["spec"].get("nodeName") for one in pods}
    for box in cluster.box_nodes():
        if box.name in on:
            yield from _node(cluster, box.name)
    for node in cluster.virtual_nodes():
        yield f"--- {node.name}: console"
        yield last_lines(node.log("console"), LOG_LINES)
        if node.name in on:
            yield f"--- {node.name}: kubelet"
            yield _told_by(node)


def _told_by(node: VirtualNode) -> str:
    try:
        return last_lines(node.log("kubelet"), LOG_LINES)
    except UpgraderError as error:
        return f"not known: {error}"


def _node(cluster: DevCluster, name: str) -> Iterator[str]:
    for program in ("kubelet", "containerd"):
        yield f"--- {name}: {program}"
        log = cluster.folder / name / "var-log" / f"{program}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        yield from [one[:400] for one in lines if one.startswith(("E", "W")) or "level=err" in one][-LOG_LINES:]
    yield f"--- {name}: processes"
    try:
        yield cluster.box_node(name).enter("ps", "-eo", "pid,ppid,stat,etimes,wchan:24,args", "--cols", "160").text
    except UpgraderError as error:
        yield f"not known: {error}"


def _items(cluster: DevCluster, path: str) -> list[dict[str, Any]]:
    return (cluster.api.get(path) or {}).get("items", [])


def _well(pod: dict[str, Any]) -> bool:
    status = pod["status"]
    ready = [one["status"] == "True" for one in status.get("conditions", []) if one["type"] == "Ready"]
    return status.get("phase") in ENDED or (status.get("phase") == "Running" and any(ready))


def _pod(pod: dict[str, Any]) -> str:
    status, meta = pod["status"], pod["metadata"]
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    said = ", ".join(f"{one['name']} {one.get('state')} restarts {one.get('restartCount')}" for one in containers)
    leaving = f", deleted {meta['deletionTimestamp']}" if "deletionTimestamp" in meta else ""
    asked = [f"{one['type']}={one['status']} {one.get('message', '')}" for one in status.get("conditions", [])]
    where = pod["spec"].get("nodeName", "no node")
    return f"{meta['namespace']}/{meta['name']} on {where}: {status.get('phase')}{leaving}; {said}; {asked}"
