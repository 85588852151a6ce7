"""The simulated vendor: real gRPC to the kubelet and real files, without GPUs. All its output states that."""

from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.model.vendors import NVIDIA, RecipeDriver, VendorFacts
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.core.node_protocol.orders import NODE_VARIABLE, POD_VARIABLE
from upgrader.stack.parts import CDI, METRICS_PORT, PLUGIN_SOCKETS, POD_RESOURCES
from upgrader.stack.vendors.programs import Mount, OperandProgram, Vendor
from upgrader_dev.vendor.labels import gpu_labels

PROGRAM = ("python3", "-m", "upgrader_dev.node")
"""The program in the images of the operands."""
PLUGIN_PORT = 8080
GPU_FEATURES = "gpu-features.json"
"""File in RUN_DIRECTORY that feature discovery writes (upgrader_dev/node/gpu_features.py)."""
READY_PATH = "/ready"
RUN = Mount(name="run", path=RUN_DIRECTORY)


def plugin_program(settings: PluginSettings) -> OperandProgram:
    """The simulated device plugin; it is ready when it is registered with the running kubelet."""
    words = [*PROGRAM, "device-plugin", "--resource", settings.resource_name, "--port", str(PLUGIN_PORT)]
    if settings.driver_vendor != settings.vendor:
        words += ["--driver", settings.driver_vendor]
    words += ["--slices", str(settings.time_slices)] if settings.time_slices else []
    words += ["--cdi"] if settings.cdi else []
    return OperandProgram(
        command=tuple(words),
        mounts=(Mount(name="sockets", path=PLUGIN_SOCKETS), RUN),
        port=PLUGIN_PORT,
        health=READY_PATH,
        awaited=True,
        done_file=f"{PLUGIN_SOCKETS}/upgrader-sim-{settings.resource_name.replace('/', '-')}.sock",
    )


def runtime_program(settings: PluginSettings) -> OperandProgram:
    """The simulated runtime hook; it reads the features of the container runtime, which requires access to its
    process.
    """
    words = [*PROGRAM, "runtime"]
    if settings.driver_vendor != settings.vendor:
        words += ["--driver", settings.driver_vendor]
    return OperandProgram(
        command=tuple(words),
        mounts=(Mount(name="cdi", path=CDI), RUN),
        pod_variable=POD_VARIABLE,
        probe=(*words, "--ready"),
        privileged=True,
        host_pid=True,
        done_file=f"{RUN_DIRECTORY}/runtime.json",
    )


def exporter_program(settings: PluginSettings) -> OperandProgram:
    """The simulated exporter, with the metric names of dcgm-exporter; it has read access to the processes of the
    node.
    """
    words = [*PROGRAM, "exporter", "--resource", settings.resource_name]
    if settings.driver_vendor != settings.vendor:
        words += ["--driver", settings.driver_vendor]
    return OperandProgram(
        command=tuple(words),
        node_variable=NODE_VARIABLE,
        mounts=(
            Mount(name="pod-resources", path=POD_RESOURCES, read_only=True),
            Mount(name="run", path=RUN_DIRECTORY, read_only=True),
        ),
        port=METRICS_PORT,
        capabilities=("SYS_PTRACE",),  # to read open files of processes of other users
        requests={"cpu": "10m", "memory": "64Mi"},
        host_pid=True,
    )


def discovery_program(settings: PluginSettings) -> OperandProgram:
    """The simulated feature discovery: it reports the loaded driver and number of devices; the controller sets the
    labels.
    """
    words = [*PROGRAM, "gpu-features"]
    if settings.driver_vendor != settings.vendor:
        words += ["--driver", settings.driver_vendor]
    return OperandProgram(
        command=(*words, "--watch"),
        report_command=tuple(words),
        mounts=(RUN,),
        capabilities=(),
        requests={"cpu": "1m", "memory": "32Mi"},
        done_file=f"{RUN_DIRECTORY}/{GPU_FEATURES}",
    )


def _runtime_check(settings: PluginSettings | None) -> OperandProgram:
    return _check_program("runtime", runtime_program(settings) if settings is not None else None)


def _plugin_check(settings: PluginSettings | None) -> OperandProgram:
    return _check_program("device-plugin", plugin_program(settings) if settings is not None else None)


def _check_program(name: str, program: OperandProgram | None) -> OperandProgram:
    # `--help` exits before unknown options are rejected.
    words = (*PROGRAM, name, "--help") if program is None else (*program.command, "--check")
    return OperandProgram(command=words)


FACTS = VendorFacts(
    name="sim",
    recipes={"sim": RecipeDriver(vendor="sim"), **NVIDIA.recipes},
    workload=False,
    notice="The GPUs are simulated: no GPU is used, and a driver of recipe sim loads no kernel module.",
)

VENDOR = Vendor(
    facts=FACTS,
    labels=gpu_labels,
    runtime=runtime_program,
    plugin=plugin_program,
    image_checks={Operand.RUNTIME: _runtime_check, Operand.DEVICE_PLUGIN: _plugin_check},
    nondisruptive={Operand.FEATURE_DISCOVERY: discovery_program, Operand.MONITORING: exporter_program},
)
