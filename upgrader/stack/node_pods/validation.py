"""Containers of validation pods and preflight Jobs that check the devices of a node and use them. Pure."""

from collections.abc import Mapping

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.core.node_protocol.orders import RestoreOrder, ValidateDriverOrder
from upgrader.stack.node_pods.commands import node_command
from upgrader.stack.parts import LOGS_ON_ERROR, POD_RESOURCES, PULL_POLICY, Manifest, host_path, volume_mount
from upgrader.stack.settings import StackSettings

DRIVER_CHECK, WORKLOAD, POWER_LIMITS = "driver", "workload", "power-limits"

_DRIVERS = f"{STATE_DIRECTORY}/drivers"


def driver_check(order: ValidateDriverOrder, settings: StackSettings, *, name: str = DRIVER_CHECK) -> Manifest:
    """The container that checks the loaded driver, its devices and the devices that the kubelet advertises."""
    return node_command(
        name,
        order,
        settings,
        command="validate-driver",
        # Devices of a real driver are opened, which requires a privileged container.
        securityContext={"privileged": True},
        volumeMounts=[
            volume_mount("run", RUN_DIRECTORY, readOnly=True),
            volume_mount("drivers", _DRIVERS, readOnly=True),
            volume_mount("pod-resources", POD_RESOURCES, readOnly=True),
        ],
    )


def power_limit_restoration(settings: StackSettings) -> Manifest:
    """The container that sets power limits of NVIDIA's GPUs again which the upgrade kept before the unload."""
    return node_command(
        POWER_LIMITS,
        RestoreOrder(),
        settings,
        command="restore-power-limits",
        securityContext={"privileged": True},
        volumeMounts=[volume_mount("state", STATE_DIRECTORY)],
    )


def power_limit_volumes() -> list[Manifest]:
    """The volumes of this container."""
    return [host_path("state", STATE_DIRECTORY)]


def driver_check_volumes() -> list[Manifest]:
    """The volumes of the driver check."""
    return [
        host_path("run", RUN_DIRECTORY),
        host_path("drivers", _DRIVERS),
        host_path("pod-resources", POD_RESOURCES),
    ]


def workload_containers(image: str, devices: Mapping[str, int]) -> list[Manifest]:
    """A container for each advertised device; the containers run concurrently, so that each has another device.

    A sample uses only the first GPU that it finds; in consecutive containers that would be the same one.

    Args:
        image: of a program that uses one GPU and exits with code 0 on success, such as NVIDIA's sample vectorAdd.
        devices: numbers of devices by extended resource.
    """
    return [
        {
            "name": f"{WORKLOAD}-{number}",
            "image": image,
            "imagePullPolicy": PULL_POLICY,
            "resources": {"limits": {resource: "1"}},
            "securityContext": {"allowPrivilegeEscalation": False},
            **LOGS_ON_ERROR,
        }
        for number, resource in enumerate(name for name, count in devices.items() for _ in range(count))
    ]


def runtime_fields(runtime_class: str) -> Manifest:
    """The fields of a pod for the RuntimeClass that makes GPUs available; empty means the default runtime."""
    return {"runtimeClassName": runtime_class} if runtime_class else {}
