"""NVIDIA's MPS control daemon beside its device plugin, by their documented settings. Never run by us: we have no GPU.

Read in their sources: k8s-device-plugin v0.20.0 (cmd/mps-control-daemon, internal/plugin/mps.go, api/config/v1, its
chart's two DaemonSets and values), and the asset state-mps-control-daemon of gpu-operator.

NVIDIA runs the daemon as a DaemonSet of its own, chosen by a label of GPU feature discovery. Here it is a container of
the plugin's pod, for these reasons:

- It holds the GPUs, so it has to be off before a driver is unloaded. The plugin's pods are those that an upgrade takes
  away, waits for, and brings back; one more DaemonSet would need a label, a place in the order and a wait of its own.
- One key for both: no node has a daemon with other replicas than its plugin, whichever way a node upgrade goes.
- The plugin asks the daemon for its health when it starts, and tries again 30 s later. As an init container that is
  restarted the daemon is ready before the plugin begins, and is ended after it.
- A plugin that crashes is started anew by itself: the daemon, and the jobs behind it, do not notice.

The price is that the plugin sees the node's processes too. It is privileged without that.
"""

from upgrader.core.model.operands import PluginSettings
from upgrader.stack.vendors.programs import CONFIG, Mount, Program

ROOT = "/run/nvidia/mps"
"""On the node: pipes, logs and shared memory of the daemon; jobs are given theirs from here by the plugin."""

ROOT_VARIABLE = "MPS_ROOT"
GRACE_SECONDS = 30
"""The daemon ends its servers and takes the GPUs out of the mode in which one process has each of them."""

MOUNTS = (Mount(name="mps-root", path=ROOT, at="/mps"), Mount(name="mps-shm", path=f"{ROOT}/shm", at="/dev/shm"))  # noqa: S108 - not ours to choose
"""Where daemon and plugin look for both, whatever ROOT is."""

INJECTED = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""What NVIDIA's container runtime goes by: with it come the driver's libraries and MPS's own programs."""

NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""With it NVIDIA's container runtime, where it is the default, does nothing: no driver need be loaded."""


def mount_shared_memory() -> Program:
    """Mounts the memory that daemon and jobs share; it has to be there on the node for both."""
    root, _ = MOUNTS
    return Program(
        command=("mps-control-daemon", "mount-shm"),
        mounts=(Mount(name=root.name, path=root.path, at=root.at, propagates=True),),
        privileged=True,
    )


def control_daemon(settings: PluginSettings, config: str) -> Program:
    """The daemon; its configuration file is the plugin's. It is ready when it answers what the plugin will ask it."""
    asked = "echo get_default_active_thread_percentage"
    answers = f"CUDA_MPS_PIPE_DIRECTORY=/mps/{settings.resource_name}/pipe nvidia-cuda-mps-control"
    return Program(
        command=("mps-control-daemon",),
        args=("--config-file", f"{CONFIG}/config.yaml"),
        config=config,
        env={"MIG_STRATEGY": "none", **INJECTED},
        mounts=MOUNTS,
        probe=("sh", "-c", f"{asked} | {answers}"),
        privileged=True,
    )


def proof(plugin: Program) -> Program:
    """Both programs say their versions, with the options that they would be started with."""
    words = 'nvidia-device-plugin "$@" && mps-control-daemon "$@"'
    return Program(command=("sh", "-c", words, "sh"), args=(*plugin.args, "--version"), env={**plugin.env, **NO_GPU})
