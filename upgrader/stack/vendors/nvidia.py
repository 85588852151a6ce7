"""NVIDIA's own programs, by their documented settings. We have no GPU: none of them was ever run by us.

Read in their sources and charts: k8s-device-plugin v0.20.0 (cmd/nvidia-device-plugin/main.go, its chart's templates,
docs/customizing of sharing; cmd/gpu-feature-discovery/main.go), dcgm-exporter 4.5.3-4.8.2 (pkg/cmd/app.go, its chart).
Driver libraries are those that our driver image leaves on the node.
"""

import json

from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.node_protocol.node_places import STATE_DIRECTORY
from upgrader.stack.parts import CDI, METRICS_PORT, PLUGIN_SOCKETS, POD_RESOURCES
from upgrader.stack.vendors import mps
from upgrader.stack.vendors.programs import CONFIG, Mount, Program, Vendor

DRIVER_ROOT = f"{STATE_DIRECTORY}/drivers/nvidia/current"
"""On the node: libraries and tools of the loaded driver; only a node upgrade leads it elsewhere."""

DRIVER = Mount(name="driver", path=f"{STATE_DIRECTORY}/drivers/nvidia", at="/drivers", read_only=True)
TOOLKIT = "/usr/local/nvidia"
"""On the node: where the toolkit puts its programs."""

FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"
"""Where node-feature-discovery's `local` source reads."""

LIBRARIES = {"NVIDIA_DRIVER_ROOT": DRIVER_ROOT, "CONTAINER_DRIVER_ROOT": "/drivers/current", "NVIDIA_DEV_ROOT": "/"}


def runtime(_: PluginSettings) -> Program:
    """NVIDIA's container toolkit: CDI descriptions, and the runtime `nvidia` beside the default one, which stays.

    It changes the runtime's configuration and restarts it; so it comes and goes in upgrades only.
    """
    return Program(
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
        done=f"{CDI}/management.nvidia.com-gpu.yaml",
    )


def plugin(settings: PluginSettings) -> Program:
    """NVIDIA's device plugin; sharing is told to it by its configuration file only.

    It has no probe of its own: a node upgrade goes by what the kubelet offers afterwards.
    """
    config = _sharing(settings) if settings.shares else ""
    by_mps = bool(settings.mps_replicas)
    return Program(
        command=("nvidia-device-plugin",),
        args=("--config-file", f"{CONFIG}/config.yaml") if config else (),
        config=config,
        first={"mps-mounts": mps.mount_shared_memory()} if by_mps else {},
        beside={"mps-control-daemon": mps.control_daemon(settings, config)} if by_mps else {},
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
        host_pid=by_mps,  # of the daemon's pod: MPS goes by the node's process numbers
        runtime_class=settings.mps_runtime,
        grace=mps.GRACE_SECONDS if by_mps else 0,
        done=f"{PLUGIN_SOCKETS}/nvidia-gpu.sock",
    )


def _sharing(settings: PluginSettings) -> str:
    """The plugin's configuration file; the resource keeps its name, since jobs ask for it."""
    shared = {
        "renameByDefault": False,
        "resources": [{"name": settings.resource_name, "replicas": settings.shares}],
    }
    # A container has the limits of one share however many it asks for, so more than one is refused: their default too.
    how = {"mps": {"failRequestsGreaterThanOne": True, **shared}} if settings.mps_replicas else {"timeSlicing": shared}
    return json.dumps({"version": "v1", "sharing": how})


def discovery(settings: PluginSettings) -> Program:
    """GPU feature discovery: writes a file that node-feature-discovery makes labels of, so it needs that one too."""
    return Program(
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
        done=f"{FEATURES}/gfd",
    )


def exporter(settings: PluginSettings) -> Program:
    """dcgm-exporter, with the pods that hold each GPU in its metrics, by the kubelet's PodResources API."""
    return Program(
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


def _plugin_proof(settings: PluginSettings | None) -> Program:
    """It says its version when it knows its options and can read those in its environment."""
    if settings is None:
        return Program(command=("nvidia-device-plugin", "--version"))
    whole = plugin(settings)
    if settings.mps_replicas:
        return mps.proof(whole)
    return Program(command=whole.command, args=(*whole.args, "--version"), env=whole.env)


VENDOR = Vendor(
    runtime=runtime,
    plugin=plugin,
    proofs={
        Operand.RUNTIME: lambda _: Program(command=("nvidia-ctk", "--version")),
        Operand.DEVICE_PLUGIN: _plugin_proof,
    },
    quiet={Operand.FEATURE_DISCOVERY: discovery, Operand.MONITORING: exporter},
)
