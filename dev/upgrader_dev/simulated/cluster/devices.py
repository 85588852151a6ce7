"""The devices that device plugins offer, according to their pods."""

import json

from upgrader.api import names
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.placing import RESOURCE

RENAMED = "example.com/gpu"
"""Another resource name that a stack may give to its GPUs."""


def shares_per_device(plugin: Object) -> int:
    """The devices that a plugin offers for each GPU: from its command, or from the configuration file of NVIDIA's."""
    words = plugin["spec"]["containers"][0].get("command", [])
    if "--slices" in words:
        return int(words[words.index("--slices") + 1])
    config = plugin["metadata"].get("annotations", {}).get(names.ANNOTATION_CONFIG)
    return (
        max(sharing["resources"][0]["replicas"] for sharing in json.loads(config)["sharing"].values()) if config else 1
    )


def is_renamed(plugins: list[Object]) -> bool:
    """Whether a node's plugin offers its GPUs under the other name."""
    readable = (pod["metadata"].get("annotations", {}).get(names.ANNOTATION_READABLE, "") for pod in plugins)
    return any(text.startswith(f"{RENAMED} ") for text in readable)


def offered_resources(count: int, *, plugins: list[Object], before: Object) -> Object:
    """The status of a node whose GPUs may have a new resource name: the previous name offers none."""
    if not is_renamed(plugins) and RENAMED not in before["status"].get("allocatable", {}):
        return {}
    by_name = {RENAMED: str(count), RESOURCE: "0"} if is_renamed(plugins) else {RENAMED: "0"}
    return {"status": {"allocatable": by_name, "capacity": by_name}}
