"""NVIDIA's programs, with their documented settings. Never run: no GPU was available.

Derived from the sources and charts: k8s-device-plugin v0.20.0 (cmd/nvidia-device-plugin/main.go, templates of its
chart, docs/customizing of sharing; cmd/gpu-feature-discovery/main.go), dcgm-exporter 4.5.3-4.8.2 (pkg/cmd/app.go, its
chart). The driver libraries are those that the driver image writes to the node.
"""

import json

from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.model.vendors import NVIDIA
from upgrader.core.node_protocol.node_places import STATE_DIRECTORY
from upgrader.stack.parts import CDI, METRICS_PORT, PLUGIN_SOCKETS, POD_RESOURCES
from upgrader.stack.vendors import mps
from upgrader.stack.vendors.programs import CONFIG, Mount, OperandProgram, Vendor

DRIVER_ROOT = f"{STATE_DIRECTORY}/drivers/nvidia/current"
"""Path on the node of libraries and tools of the loaded driver; only a node upgrade changes its target."""

DRIVER = Mount(name="driver", path=f"{STATE_DIRECTORY}/drivers/nvidia", at="/drivers", read_only=True)
TOOLKIT = "/usr/local/nvidia"
"""Folder on the node with the programs of the toolkit."""

FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"
"""Folder that the `local` source of node-feature-discovery reads."""

LIBRARIES = {"NVIDIA_DRIVER_ROOT": DRIVER_ROOT, "CONTAINER_DRIVER_ROOT": "/drivers/current", "NVIDIA_DEV_ROOT": "/"}


def runtime_program(_: PluginSettings) -> OperandProgram:
    """NVIDIA's container toolkit: CDI specifications, and the runtime `nvidia` in addition to the default runtime.

    It changes the configuration of the container runtime and restarts it; therefore it changes in upgrades only.
    """
    return OperandProgram(
        env={
            "ROOT": TOOLKIT,
            "CDI_ENABLED": "true",
            "NVIDIA_DRIVER_ROOT": DRIVER_ROOT,
            "DRIVER_ROOT_CTR_PATH": "/drivers/current",
            "RUNTIME": "containerd",
            "RUNTIME_CONFIG": "/runtime/config-dir/config.toml",
            "RUNTIME_SOCKET": "/runtime/sock-dir/containerd.sock",
            "CONTAINERD_RUNTIME_CLASS": "nvidia",
            "CONTAINERD_SET_AS_DEFAULT": "false",
        },
        mounts=(
            Mount(name="toolkit", path=TOOLKIT),
            Mount(name="toolkit-run", path="/run/nvidia/toolkit"),
            Mount(name="cdi", path=CDI),
            Mount(name="runtime-config", path="/etc/containerd", at="/runtime/config-dir"),
            Mount(name="runtime-socket", path="/run/containerd", at="/runtime/sock-dir"),
            DRIVER,
        ),
        privileged=True,
        host_pid=True,
        done_file=f"{CDI}/management.nvidia.com-gpu.yaml",
    )


def plugin_program(settings: PluginSettings) -> OperandProgram:
    """NVIDIA's device plugin; sharing is configured by its configuration file only.

    It has no probe: a node upgrade checks the devices that the kubelet advertises afterwards.
    """
    config = _sharing_config(settings) if settings.shares else ""
    by_mps = bool(settings.mps_replicas)
    return OperandProgram(
        command=("nvidia-device-plugin",),
        args=("--config-file", f"{CONFIG}/config.yaml") if config else (),
        config=config,
        init_programs={"mps-mounts": mps.mount_shared_memory()} if by_mps else {},
        sidecars={"mps-control-daemon": mps.control_daemon(settings, config)} if by_mps else {},
        env={
            "MIG_STRATEGY": settings.mig_strategy or "none",
            "FAIL_ON_INIT_ERROR": "true",
            "DEVICE_LIST_STRATEGY": "cdi-cri" if settings.cdi else "envvar",
            "DEVICE_ID_STRATEGY": "uuid",
            **LIBRARIES,
            **({"NVIDIA_CDI_HOOK_PATH": f"{TOOLKIT}/toolkit/nvidia-cdi-hook"} if settings.cdi else {}),
            **({mps.ROOT_VARIABLE: mps.ROOT, **mps.INJECTED} if by_mps else {}),
        },
        mounts=(
            Mount(name="sockets", path=PLUGIN_SOCKETS),
            *((Mount(name="cdi", path=CDI),) if settings.cdi else ()),
            *(mps.MOUNTS if by_mps else ()),
            DRIVER,
        ),
        privileged=True,
        host_pid=by_mps,  # for the daemon: MPS uses the process IDs of the node
        runtime_class=settings.mps_runtime,
        grace_seconds=mps.GRACE_SECONDS if by_mps else 0,
        done_file=f"{PLUGIN_SOCKETS}/nvidia-gpu.sock",
    )


def _sharing_config(settings: PluginSettings) -> str:
    """The configuration file of the plugin; the resource keeps its name, since jobs request it."""
    shared = {
        "renameByDefault": False,
        "resources": [{"name": settings.resource_name, "replicas": settings.shares}],
    }
    # A container gets the limits of one share for any number of shares, so more than one is rejected, as by default.
    how = {"mps": {"failRequestsGreaterThanOne": True, **shared}} if settings.mps_replicas else {"timeSlicing": shared}
    return json.dumps({"version": "v1", "sharing": how})


def discovery_program(settings: PluginSettings) -> OperandProgram:
    """GPU feature discovery, which writes a file that node-feature-discovery converts to labels and therefore
    requires.
    """
    return OperandProgram(
        command=("gpu-feature-discovery",),
        env={
            "MIG_STRATEGY": settings.mig_strategy or "none",
            "GFD_FAIL_ON_INIT_ERROR": "true",
            "GFD_SLEEP_INTERVAL": "60s",
            "GFD_OUTPUT_FILE": f"{FEATURES}/gfd",
            **LIBRARIES,
        },
        mounts=(Mount(name="features", path=FEATURES), Mount(name="sys", path="/sys", read_only=True), DRIVER),
        privileged=True,
        done_file=f"{FEATURES}/gfd",
    )


def exporter_program(settings: PluginSettings) -> OperandProgram:
    """dcgm-exporter, whose metrics have the pod that uses each GPU, from the PodResources API of the kubelet."""
    return OperandProgram(
        args=("-f", "/etc/dcgm-exporter/default-counters.csv"),
        env={
            "DCGM_EXPORTER_LISTEN": f":{METRICS_PORT}",
            "DCGM_EXPORTER_KUBERNETES": "true",
            "NVIDIA_RESOURCE_NAMES": settings.resource_name,
            "LD_LIBRARY_PATH": "/drivers/current/usr/lib/x86_64-linux-gnu",
            **({"KUBERNETES_VIRTUAL_GPUS": "true"} if settings.shares else {}),
        },
        node_variable="NODE_NAME",
        mounts=(Mount(name="pod-resources", path=POD_RESOURCES, read_only=True), DRIVER),
        port=METRICS_PORT,
        requests={"cpu": "100m", "memory": "128Mi"},
        privileged=True,
    )


def _plugin_check(settings: PluginSettings | None) -> OperandProgram:
    """The program that prints the version of the plugin, which validates its options and environment."""
    if settings is None:
        return OperandProgram(command=("nvidia-device-plugin", "--version"))
    program = plugin_program(settings)
    if settings.mps_replicas:
        return mps.version_program(program)
    return OperandProgram(command=program.command, args=(*program.args, "--version"), env=program.env)


VENDOR = Vendor(
    facts=NVIDIA,
    runtime=runtime_program,
    plugin=plugin_program,
    image_checks={
        Operand.RUNTIME: lambda _: OperandProgram(command=("nvidia-ctk", "--version")),
        Operand.DEVICE_PLUGIN: _plugin_check,
    },
    nondisruptive={Operand.FEATURE_DISCOVERY: discovery_program, Operand.MONITORING: exporter_program},
)
