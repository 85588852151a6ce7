"""The `sim` device plugin: real gRPC to the kubelet's device manager, simulated devices behind it.

It offers a fixed number of devices; one is healthy while the loaded driver shows its file and nobody wrote its name
into the `unhealthy` file. What a container gets is its device files and the list of their names.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
from msgspec import Struct

from upgrader.core.orders import RUN_DIRECTORY
from upgrader.node import devices
from upgrader.node.proto import deviceplugin_pb2 as messages
from upgrader.node.proto import deviceplugin_pb2_grpc as services

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
LOOK_SECONDS = 0.2


class Offer(Struct, frozen=True, kw_only=True):
    """What the plugin offers, and where it looks; `run` is the node's RUN_DIRECTORY as this container sees it."""

    resource: str
    count: int
    run: Path

    def health(self) -> dict[str, str]:
        """HEALTHY or UNHEALTHY by device name."""
        try:
            unhealthy = set((self.run / devices.VENDOR / "unhealthy").read_text(encoding="utf-8").split())
        except FileNotFoundError:
            unhealthy = set()
        folder = devices.folder(self.run)
        names = (devices.name_of(number) for number in range(self.count))
        return {name: HEALTHY if name not in unhealthy and (folder / name).exists() else UNHEALTHY for name in names}


class DevicePlugin(services.DevicePluginServicer):
    """One registration's worth of the service; `shown` is set once the kubelet has been sent the devices."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._stopped = threading.Event()
        self.shown = threading.Event()

    def stop(self) -> None:
        """End the streams."""
        self._stopped.set()

    def GetDevicePluginOptions(  # noqa: N802 - the API's name
        self, _request: messages.Empty, _context: grpc.ServicerContext
    ) -> messages.DevicePluginOptions:
        """Nothing optional is offered."""
        return messages.DevicePluginOptions()

    def ListAndWatch(  # noqa: N802 - the API's name
        self, _request: messages.Empty, context: grpc.ServicerContext
    ) -> Iterator[messages.ListAndWatchResponse]:
        """All devices at once, and again whenever the health of one changes."""
        last: dict[str, str] = {}
        while context.is_active() and not self._stopped.is_set():
            health = self._offer.health()
            if health != last:
                last = health
                yield messages.ListAndWatchResponse(
                    devices=[messages.Device(ID=name, health=state) for name, state in health.items()]
                )
                self.shown.set()
            self._stopped.wait(LOOK_SECONDS)

    def Allocate(  # noqa: N802 - the API's name
        self, request: messages.AllocateRequest, context: grpc.ServicerContext
    ) -> messages.AllocateResponse:
        """Device files and their names, for each container of a pod."""
        known = self._offer.health()
        wanted = [sorted(container.devices_ids) for container in request.container_requests]
        strangers = sorted({name for names in wanted for name in names} - set(known))
        if strangers:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no such device: {', '.join(strangers)}")
        return messages.AllocateResponse(container_responses=[_handed_in(names) for names in wanted])


def _handed_in(names: list[str]) -> messages.ContainerAllocateResponse:
    # Files are mounted, not handed over as device nodes: a container runtime would make a node of its own from the
    # numbers, and there are no numbers; mounted, each file is the very one that `unload` looks for in open files.
    node_folder = devices.folder(Path(RUN_DIRECTORY))
    mounts = [messages.Mount(container_path=f"/dev/{name}", host_path=str(node_folder / name)) for name in names]
    return messages.ContainerAllocateResponse(envs={devices.VISIBLE: ",".join(names)}, mounts=mounts)
