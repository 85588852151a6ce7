"""Containers of operands, made of what their vendor says. Pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from upgrader.api import names
from upgrader.core.model.operands import Operand
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.stack.parts import NODE_PROGRAM, PLUGIN_SOCKETS, PULL, Manifest, host_path, mount
from upgrader.stack.settings import StackSettings
from upgrader.stack.vendors.programs import CONFIG, Mount, Program

AFTER = "after-"
"""How the names of init containers begin that wait for an operand; its name follows in small letters."""

STARTUP_SECONDS = 600
READY_SECONDS, PROGRAM_SECONDS = 5, 10
"""Between two questions once it was ready: over the network, and by a program, which costs a node more to start.

A kubelet that started less than such a time ago, as in an upgrade, delays every new probe by up to as much, and the
upgrade waits for that: longer times than these make it longer.
"""
NETWORK_START, PROGRAM_START = 1, 2
"""The same until it is ready once, because a node upgrade waits for that."""


class Before(NamedTuple):
    """An operand that comes first, and the file of the node that shows that it did its work on this boot."""

    operand: Operand
    file: str

    @property
    def folder(self) -> str:
        """What is mounted to look for it: a folder that is there before the file is."""
        return RUN_DIRECTORY if self.file.startswith(f"{RUN_DIRECTORY}/") else self.file.rpartition("/")[0]

    @property
    def volume(self) -> str:
        """Name of the volume with that folder."""
        return {RUN_DIRECTORY: "run", PLUGIN_SOCKETS: "sockets"}.get(self.folder, f"of-{self.operand.value.lower()}")


def container(name: str, image: str, program: Program) -> Manifest:
    """The container that does the operand's work."""
    found: Manifest = {"name": name, "image": image, "imagePullPolicy": PULL}
    found |= {"command": list(program.command)} if program.command else {}
    found |= {"args": list(program.args)} if program.args else {}
    env: list[Manifest] = [{"name": key, "value": value} for key, value in program.env.items()]
    if program.node_variable:
        env.append({"name": program.node_variable, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    if program.pod_variable:
        env.append({"name": program.pod_variable, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}})
    found |= {"env": env} if env else {}
    found |= _security(program)
    found |= {"resources": {"requests": dict(program.requests)}} if program.requests else {}
    found |= _readiness(program)
    mounts = [_mounted(one) for one in program.mounts]
    mounts += [mount("config", CONFIG, readOnly=True)] if program.config else []
    return found | {"volumeMounts": mounts}


def around(image: str, program: Program) -> list[Manifest]:
    """The containers that its pod starts before it, after what it waits for.

    Those beside it are init containers that are restarted (Kubernetes 1.29 and later): the kubelet starts it when they
    are ready, starts each anew by itself, and ends them after it.
    """
    first = [container(name, image, one) for name, one in program.first.items()]
    return first + [container(name, image, one) | {"restartPolicy": "Always"} for name, one in program.beside.items()]


def volumes(program: Program, before: Iterable[Before]) -> list[Manifest]:
    """The volumes of its mounts, and of what its init containers look at."""
    found = {one.name: host_path(one.name, one.path) for one in program.all_mounts}
    for one in before:
        found.setdefault(one.volume, host_path(one.volume, one.folder))
    if program.config:
        item = {"path": "config.yaml", "fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_CONFIG}']"}}
        found["config"] = {"name": "config", "downwardAPI": {"items": [item]}}
    return list(found.values())


def probes(command: list[str]) -> dict[str, Any]:
    """Of a program; it may take long on a very busy node, where one that is cut off would only be started again."""
    return _awaited({"exec": {"command": command}, "timeoutSeconds": 30}, PROGRAM_START, PROGRAM_SECONDS)


def _awaited(probe: Manifest, until: int, seconds: int) -> dict[str, Any]:
    """Asked every `until` seconds until it is ready once, then more seldom."""
    return {
        "startupProbe": {**probe, "periodSeconds": until, "failureThreshold": STARTUP_SECONDS // until},
        "readinessProbe": {**probe, "periodSeconds": seconds, "failureThreshold": 2},
    }


def waits_for(before: Before, settings: StackSettings) -> Manifest:
    """An init container that ends when an operand before this one has done its work on this boot.

    Its name says for whom it waits: the stack's status goes by it.
    """
    name = before.operand.value
    return {
        "name": f"{AFTER}{name.lower()}",
        "image": settings.node_image,
        "imagePullPolicy": PULL,
        "command": [*NODE_PROGRAM, "wait", "--for", name, "--file", before.file],
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}},
        "volumeMounts": [mount(before.volume, before.folder, readOnly=True)],
    }


def driver_done(vendor: str) -> str:
    """The record of a loaded driver: on tmpfs, so one that is there is of this boot."""
    return f"{RUN_DIRECTORY}/{vendor}/loaded.json"


def _security(program: Program) -> dict[str, Any]:
    if program.privileged:
        return {"securityContext": {"privileged": True}}
    if program.capabilities is None:
        return {}
    kept = {"add": list(program.capabilities)} if program.capabilities else {}
    return {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], **kept},
            "readOnlyRootFilesystem": True,
        }
    }


def _readiness(program: Program) -> dict[str, Any]:
    if program.probe:
        return probes(list(program.probe))
    if not program.port:
        return {}
    probe = {"httpGet": {"path": program.health, "port": program.port}, "timeoutSeconds": 5}
    if program.awaited:
        return _awaited(probe, NETWORK_START, READY_SECONDS)
    probe |= {"periodSeconds": 10}
    return {
        "ports": [{"name": "metrics", "containerPort": program.port}],
        "readinessProbe": {**probe, "failureThreshold": 3},
    }


def _mounted(one: Mount) -> Manifest:
    more: Manifest = {"readOnly": True} if one.read_only else {}
    more |= {"mountPropagation": "Bidirectional"} if one.propagates else {}
    return mount(one.name, one.at or one.path, **more)
