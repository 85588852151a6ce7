"""What looks at the devices of a node and works on them: containers of validation pods and pre-flight Jobs. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.core.node_protocol.orders import ValidateDriverOrder
from upgrader.stack.commands import LOGS_ON_ERROR, node_command
from upgrader.stack.parts import POD_RESOURCES, PULL, Manifest, host_path, mount
from upgrader.stack.settings import StackSettings

DRIVER_CHECK, WORKLOAD = "driver", "workload"

_DRIVERS = f"{STATE_DIRECTORY}/drivers"


class Workload(Struct, frozen=True, kw_only=True):
    """An image that works on the GPU that it is given and ends with 0 if that went well, as NVIDIA's sample vectorAdd.

    `runtime_class` is what hands GPUs into containers, empty where the default runtime does.
    """

    image: str
    runtime_class: str = ""


def driver_check(order: ValidateDriverOrder, settings: StackSettings, *, name: str = DRIVER_CHECK) -> Manifest:
    """Looks at the loaded driver, at each of its devices and at what the kubelet offers; changes nothing."""
    return node_command(
        name,
        order,
        settings,
        command="validate-driver",
        # A real driver's devices are opened, which only a privileged container may.
        securityContext={"privileged": True},
        volumeMounts=[
            mount("run", RUN_DIRECTORY, readOnly=True),
            mount("drivers", _DRIVERS, readOnly=True),
            mount("pod-resources", POD_RESOURCES, readOnly=True),
        ],
    )


def driver_check_volumes() -> list[Manifest]:
    """What the driver check sees of the node."""
    return [
        host_path("run", RUN_DIRECTORY),
        host_path("drivers", _DRIVERS),
        host_path("pod-resources", POD_RESOURCES),
    ]


def works(workload: Workload, asked: Mapping[str, int]) -> list[Manifest]:
    """A container for each device that is offered: beside each other, so that each has another one.

    `asked` are numbers of devices by extended resource.

    A sample works on one GPU only, the first that it sees; in one container after the other it would be the same.
    """
    return [
        {
            "name": f"{WORKLOAD}-{number}",
            "image": workload.image,
            "imagePullPolicy": PULL,
            "resources": {"limits": {resource: "1"}},
            "securityContext": {"allowPrivilegeEscalation": False},
            **LOGS_ON_ERROR,
        }
        for number, resource in enumerate(name for name, count in asked.items() for _ in range(count))
    ]


def in_runtime(workload: Workload) -> Manifest:
    """What its pod needs beside it."""
    return {"runtimeClassName": workload.runtime_class} if workload.runtime_class else {}
