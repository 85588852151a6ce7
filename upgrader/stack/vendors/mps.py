"""NVIDIA's MPS control daemon beside the device plugin, by their documented settings. Never run: no GPU was available.

Derived from the sources: k8s-device-plugin v0.20.0 (cmd/mps-control-daemon, internal/plugin/mps.go, api/config/v1,
the two DaemonSets and values of its chart), and the asset state-mps-control-daemon of gpu-operator.

NVIDIA runs the daemon as a separate DaemonSet, selected by a label of GPU feature discovery. Here it is a container
of the plugin pod, for these reasons:

- It holds the GPUs, so it must end before a driver is unloaded. An upgrade already stops, awaits and restarts the
plugin pods; another DaemonSet would require its own label, order and wait.
- Both have one key: a node never has a daemon with other replicas than its plugin, also in a revert.
- The plugin checks the daemon when it starts, and tries again 30 s later. As a restartable init container the daemon
is ready before the plugin starts, and ends after it.
- A plugin that crashes is restarted separately, without an effect on the daemon and its jobs.

The disadvantage is that the plugin has access to the processes of the node. It is privileged in any case.
"""

from upgrader.core.model.operands import PluginSettings
from upgrader.stack.vendors.programs import CONFIG, Mount, OperandProgram

ROOT = "/run/nvidia/mps"
"""Folder on the node with pipes, logs and shared memory of the daemon; the plugin mounts those of jobs from here."""

ROOT_VARIABLE = "MPS_ROOT"
GRACE_SECONDS = 30
"""Time for the daemon to end its servers and to reset the exclusive process mode of the GPUs."""

MOUNTS = (Mount(name="mps-root", path=ROOT, at="/mps"), Mount(name="mps-shm", path=f"{ROOT}/shm", at="/dev/shm"))  # noqa: S108 - defined by NVIDIA
"""Paths that daemon and plugin use in their containers, independent of ROOT."""

INJECTED = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""Environment by which NVIDIA's container runtime adds the libraries of the driver and the programs of MPS."""

NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""Environment with which NVIDIA's container runtime, if it is the default, does nothing and requires no driver."""


def mount_shared_memory() -> OperandProgram:
    """The program that mounts the memory that daemon and jobs share on the node."""
    root, _ = MOUNTS
    return OperandProgram(
        command=("mps-control-daemon", "mount-shm"),
        mounts=(Mount(name=root.name, path=root.path, at=root.at, propagates=True),),
        privileged=True,
    )


def control_daemon(settings: PluginSettings, config: str) -> OperandProgram:
    """The daemon, with the configuration file of the plugin. Its probe is the request that the plugin makes."""
    request = "echo get_default_active_thread_percentage"
    client = f"CUDA_MPS_PIPE_DIRECTORY=/mps/{settings.resource_name}/pipe nvidia-cuda-mps-control"
    return OperandProgram(
        command=("mps-control-daemon",),
        args=("--config-file", f"{CONFIG}/config.yaml"),
        config=config,
        env={"MIG_STRATEGY": "none", **INJECTED},
        mounts=MOUNTS,
        probe=("sh", "-c", f"{request} | {client}"),
        privileged=True,
    )


def version_program(plugin: OperandProgram) -> OperandProgram:
    """The program that prints the versions of both programs, with the options that they are started with."""
    script = 'nvidia-device-plugin "$@" && mps-control-daemon "$@"'
    return OperandProgram(
        command=("sh", "-c", script, "sh"), args=(*plugin.args, "--version"), env={**plugin.env, **NO_GPU}
    )
