"""Containers of operands, rendered from the programs of their vendor. Pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from upgrader.api import names
from upgrader.core.model.operands import Operand
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.stack.parts import NODE_PROGRAM, PLUGIN_SOCKETS, PULL, Manifest, host_path, mount
from upgrader.stack.settings import StackSettings
from upgrader.stack.vendors.programs import CONFIG, Mount, Program

AFTER = "after-"
"""Prefix of the names of init containers that wait for an operand; the name of the operand follows in lower case."""

STARTUP_SECONDS = 600
READY_SECONDS, PROGRAM_SECONDS = 5, 10
"""Periods of readiness probes after the first success: by HTTP, and by a command, which costs more CPU time.

A kubelet that started less than one period ago, as in an upgrade, delays each new probe by up to one period, and the
upgrade waits for that: longer periods make upgrades longer.
"""
NETWORK_START, PROGRAM_START = 1, 2
"""Periods of startup probes, which are shorter because a node upgrade waits for the first success."""


class Before(NamedTuple):
    """An operand that starts earlier, and the file on the node that it writes when it is done on this boot."""

    operand: Operand
    file: str

    @property
    def folder(self) -> str:
        """The folder that is mounted to find the file, which exists before the file."""
        return RUN_DIRECTORY if self.file.startswith(f"{RUN_DIRECTORY}/") else self.file.rpartition("/")[0]

    @property
    def volume(self) -> str:
        """Name of the volume with the folder."""
        return {RUN_DIRECTORY: "run", PLUGIN_SOCKETS: "sockets"}.get(self.folder, f"of-{self.operand.value.lower()}")


def container(name: str, image: str, program: Program) -> Manifest:
    """The main container of an operand."""
    found: Manifest = {"name": name, "image": image, "imagePullPolicy": PULL}
    found |= {"command": list(program.command)} if program.command else {}
    found |= {"args": list(program.args)} if program.args else {}
    env: list[Manifest] = [{"name": key, "value": value} for key, value in program.env.items()]
    if program.node_variable:
        env.append({"name": program.node_variable, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    if program.pod_variable:
        env.append({"name": program.pod_variable, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}})
    found |= {"env": env} if env else {}
    found |= _security_context(program)
    found |= {"resources": {"requests": dict(program.requests)}} if program.requests else {}
    found |= _readiness_fields(program)
    mounts = [_volume_mount(one) for one in program.mounts]
    mounts += [mount("config", CONFIG, readOnly=True)] if program.config else []
    return found | {"volumeMounts": mounts}


def around(image: str, program: Program) -> list[Manifest]:
    """The init containers that start before the main container, after those that wait for operands.

    Sidecars are restartable init containers (Kubernetes 1.29 and later): the kubelet starts the main container when
    they are ready, restarts each of them separately, and ends them after the main container.
    """
    first = [container(name, image, one) for name, one in program.first.items()]
    return first + [container(name, image, one) | {"restartPolicy": "Always"} for name, one in program.beside.items()]


def volumes(program: Program, before: Iterable[Before]) -> list[Manifest]:
    """The volumes of the mounts of a program and of its init containers."""
    found = {one.name: host_path(one.name, one.path) for one in program.all_mounts}
    for one in before:
        found.setdefault(one.volume, host_path(one.volume, one.folder))
    if program.config:
        item = {"path": "config.yaml", "fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_CONFIG}']"}}
        found["config"] = {"name": "config", "downwardAPI": {"items": [item]}}
    return list(found.values())


def probes(command: list[str]) -> dict[str, Any]:
    """Probes by a command. The timeout is long, for very busy nodes, where a command that times out would only be
    repeated.
    """
    return _probe_pair({"exec": {"command": command}, "timeoutSeconds": 30}, PROGRAM_START, PROGRAM_SECONDS)


def _probe_pair(probe: Manifest, until: int, seconds: int) -> dict[str, Any]:
    """A startup probe every `until` seconds until the first success, then a readiness probe every `seconds`
    seconds.
    """
    return {
        "startupProbe": {**probe, "periodSeconds": until, "failureThreshold": STARTUP_SECONDS // until},
        "readinessProbe": {**probe, "periodSeconds": seconds, "failureThreshold": 2},
    }


def waits_for(before: Before, settings: StackSettings) -> Manifest:
    """An init container that ends when an earlier operand is done on this boot.

    Its name contains the name of that operand, which the status of the stack uses.
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
    """Path of the record of a loaded driver. It is on tmpfs, so an existing record is of this boot."""
    return f"{RUN_DIRECTORY}/{vendor}/loaded.json"


def _security_context(program: Program) -> dict[str, Any]:
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


def _readiness_fields(program: Program) -> dict[str, Any]:
    if program.probe:
        return probes(list(program.probe))
    if not program.port:
        return {}
    probe = {"httpGet": {"path": program.health, "port": program.port}, "timeoutSeconds": 5}
    if program.awaited:
        return _probe_pair(probe, NETWORK_START, READY_SECONDS)
    probe |= {"periodSeconds": 10}
    return {
        "ports": [{"name": "metrics", "containerPort": program.port}],
        "readinessProbe": {**probe, "failureThreshold": 3},
    }


def _volume_mount(one: Mount) -> Manifest:
    more: Manifest = {"readOnly": True} if one.read_only else {}
    more |= {"mountPropagation": "Bidirectional"} if one.propagates else {}
    return mount(one.name, one.at or one.path, **more)
