"""What device plugins offer, as their pods say."""

import json

from upgrader.api import names
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.placing import RESOURCE

RENAMED = "example.com/gpu"
"""Another name that a stack may give to its GPUs."""


def shares_per_device(plugin: Object) -> int:
    """As how many devices a plugin offers each of its own, by its command; NVIDIA's by its configuration file."""
    words = plugin["spec"]["containers"][0].get("command", [])
    if "--slices" in words:
        return int(words[words.index("--slices") + 1])
    told = plugin["metadata"].get("annotations", {}).get(names.ANNOTATION_CONFIG)
    return max(one["resources"][0]["replicas"] for one in json.loads(told)["sharing"].values()) if told else 1


def is_renamed(plugins: list[Object]) -> bool:
    """Whether a node's plugin offers its GPUs by the other name."""
    readable = (pod["metadata"].get("annotations", {}).get(names.ANNOTATION_READABLE, "") for pod in plugins)
    return any(text.startswith(f"{RENAMED} ") for text in readable)


def offered_resources(count: int, *, plugins: list[Object], before: Object) -> Object:
    """The status of a node whose GPUs may have another name than before: none is offered by a name that has gone."""
    if not is_renamed(plugins) and RENAMED not in before["status"].get("allocatable", {}):
        return {}
    by_name = {RENAMED: str(count), RESOURCE: "0"} if is_renamed(plugins) else {RENAMED: "0"}
    return {"status": {"allocatable": by_name, "capacity": by_name}}
