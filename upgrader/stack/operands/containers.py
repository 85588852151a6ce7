"""Containers of operands, rendered from the programs of their vendor. Pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from upgrader.api import names
from upgrader.core.model.operands import Operand
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.stack.parts import NODE_PROGRAM, PLUGIN_SOCKETS, PULL_POLICY, Manifest, host_path, volume_mount
from upgrader.stack.settings import StackSettings
from upgrader.stack.vendors.programs import CONFIG, Mount, OperandProgram

WAIT_PREFIX = "after-"
"""Prefix of the names of init containers that wait for an operand; the name of the operand follows in lower case."""

STARTUP_SECONDS = 600
HTTP_READY_SECONDS, COMMAND_READY_SECONDS = 5, 10
"""Periods of readiness probes after the first success: by HTTP, and by a command, which costs more CPU time.

A kubelet that started less than one period ago, as in an upgrade, delays each new probe by up to one period, and the
upgrade waits for that: longer periods make upgrades longer.
"""
HTTP_START_SECONDS, COMMAND_START_SECONDS = 1, 2
"""Periods of startup probes, which are shorter because a node upgrade waits for the first success."""


class EarlierOperand(NamedTuple):
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


def operand_container(name: str, image: str, program: OperandProgram) -> Manifest:
    """The main container of an operand."""
    manifest: Manifest = {"name": name, "image": image, "imagePullPolicy": PULL_POLICY}
    manifest |= {"command": list(program.command)} if program.command else {}
    manifest |= {"args": list(program.args)} if program.args else {}
    env: list[Manifest] = [{"name": key, "value": value} for key, value in program.env.items()]
    if program.node_variable:
        env.append({"name": program.node_variable, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    if program.pod_variable:
        env.append({"name": program.pod_variable, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}})
    manifest |= {"env": env} if env else {}
    manifest |= _security_context(program)
    manifest |= {"resources": {"requests": dict(program.requests)}} if program.requests else {}
    manifest |= _readiness_fields(program)
    mounts = [_program_mount(mounted) for mounted in program.mounts]
    mounts += [volume_mount("config", CONFIG, readOnly=True)] if program.config else []
    return manifest | {"volumeMounts": mounts}


def init_containers(image: str, program: OperandProgram) -> list[Manifest]:
    """The init containers that start before the main container, after those that wait for operands.

    Sidecars are restartable init containers (Kubernetes 1.29 and later): the kubelet starts the main container when
    they are ready, restarts each of them separately, and ends them after the main container.
    """
    inits = [operand_container(name, image, init) for name, init in program.init_programs.items()]
    return inits + [
        operand_container(name, image, sidecar) | {"restartPolicy": "Always"}
        for name, sidecar in program.sidecars.items()
    ]


def program_volumes(program: OperandProgram, earlier: Iterable[EarlierOperand]) -> list[Manifest]:
    """The volumes of the mounts of a program and of its init containers."""
    by_name = {mounted.name: host_path(mounted.name, mounted.path) for mounted in program.all_mounts}
    for operand in earlier:
        by_name.setdefault(operand.volume, host_path(operand.volume, operand.folder))
    if program.config:
        item = {"path": "config.yaml", "fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_CONFIG}']"}}
        by_name["config"] = {"name": "config", "downwardAPI": {"items": [item]}}
    return list(by_name.values())


def command_probes(command: list[str]) -> dict[str, Any]:
    """Probes by a command. The timeout is long, for very busy nodes, where a command that times out would only be
    repeated.
    """
    return _probe_pair(
        {"exec": {"command": command}, "timeoutSeconds": 30}, COMMAND_START_SECONDS, COMMAND_READY_SECONDS
    )


def _probe_pair(probe: Manifest, start_period: int, ready_period: int) -> dict[str, Any]:
    """A startup probe every `start_period` seconds until the first success, then a readiness probe every `ready_period`
    seconds.
    """
    return {
        "startupProbe": {**probe, "periodSeconds": start_period, "failureThreshold": STARTUP_SECONDS // start_period},
        "readinessProbe": {**probe, "periodSeconds": ready_period, "failureThreshold": 2},
    }


def wait_container(earlier: EarlierOperand, settings: StackSettings) -> Manifest:
    """An init container that ends when an earlier operand is done on this boot.

    Its name contains the name of that operand, which the status of the stack uses.
    """
    name = earlier.operand.value
    return {
        "name": f"{WAIT_PREFIX}{name.lower()}",
        "image": settings.node_image,
        "imagePullPolicy": PULL_POLICY,
        "command": [*NODE_PROGRAM, "wait", "--for", name, "--file", earlier.file],
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}},
        "volumeMounts": [volume_mount(earlier.volume, earlier.folder, readOnly=True)],
    }


def driver_done_file(vendor: str) -> str:
    """Path of the record of a loaded driver. It is on tmpfs, so an existing record is of this boot."""
    return f"{RUN_DIRECTORY}/{vendor}/loaded.json"


def _security_context(program: OperandProgram) -> dict[str, Any]:
    if program.privileged:
        return {"securityContext": {"privileged": True}}
    if program.capabilities is None:
        return {}
    added = {"add": list(program.capabilities)} if program.capabilities else {}
    return {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], **added},
            "readOnlyRootFilesystem": True,
        }
    }


def _readiness_fields(program: OperandProgram) -> dict[str, Any]:
    if program.probe:
        return command_probes(list(program.probe))
    if not program.port:
        return {}
    probe = {"httpGet": {"path": program.health, "port": program.port}, "timeoutSeconds": 5}
    if program.awaited:
        return _probe_pair(probe, HTTP_START_SECONDS, HTTP_READY_SECONDS)
    probe |= {"periodSeconds": 10}
    return {
        "ports": [{"name": "metrics", "containerPort": program.port}],
        "readinessProbe": {**probe, "failureThreshold": 3},
    }


def _program_mount(mounted: Mount) -> Manifest:
    fields: Manifest = {"readOnly": True} if mounted.read_only else {}
    fields |= {"mountPropagation": "Bidirectional"} if mounted.propagates else {}
    return volume_mount(mounted.name, mounted.at or mounted.path, **fields)
