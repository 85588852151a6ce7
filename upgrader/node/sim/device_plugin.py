"""The `sim` device plugin: real gRPC to the kubelet's device manager, simulated devices behind it.

It offers a fixed number of devices; one is healthy while the loaded driver shows its file and nobody wrote its name
into the `unhealthy` file. What a container gets is its device files and the list of their names.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
from msgspec import Struct

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.node.driver import devices
from upgrader.node.proto import deviceplugin_pb2 as messages
from upgrader.node.proto import deviceplugin_pb2_grpc as services
from upgrader.node.sim.runtime import KIND, hooked

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
LOOK_SECONDS = 1.0


class Offer(Struct, frozen=True, kw_only=True):
    """What the plugin offers, and where it looks; `run` is the node's RUN_DIRECTORY as this container sees it.

    `driver` is the vendor of the loaded driver: a simulated one shows a file per device, a real one that it is loaded.
    `slices`: as how many devices each is offered; their names are the device's with `::` and a number, as NVIDIA's.
    `cdi`: containers get names of CDI devices, wherever the runtime hook has found on this boot that the node's runtime
    serves them.
    """

    resource: str
    count: int
    run: Path
    driver: str = devices.VENDOR
    cdi: bool = False
    slices: int = 1

    def health(self) -> dict[str, str]:
        """HEALTHY or UNHEALTHY by device name."""
        names = [devices.name_of(number) for number in range(self.count)]
        there = {name for name in names if self._shows(name)}
        well = there - devices.unhealthy(self.run).keys()
        return {part: HEALTHY if name in well else UNHEALTHY for name in names for part in self._parts(name)}

    def _parts(self, name: str) -> list[str]:
        return [name] if self.slices == 1 else [f"{name}{devices.SHARED}{number}" for number in range(self.slices)]

    def _shows(self, name: str) -> bool:
        """Whether the driver that should be loaded shows a device."""
        if self.driver == devices.VENDOR:
            return (devices.folder(self.run) / name).exists()
        return (self.run / self.driver / "loaded.json").exists()

    def handed_in(self, names: list[str]) -> messages.ContainerAllocateResponse:
        """What a container gets that is given these devices, or shares of them: each device once."""
        names = sorted({name.partition(devices.SHARED)[0] for name in names})
        response = messages.ContainerAllocateResponse(envs={devices.VISIBLE: ",".join(names)})
        hook = hooked(self.run, self.driver) if self.cdi else None
        if hook is not None and hook.cdi:
            response.cdi_devices.extend(messages.CDIDevice(name=f"{KIND}={name}") for name in names)
            return response
        if self.driver in devices.CONTROL:
            host = devices.CONTROL[self.driver]
            specs = [
                messages.DeviceSpec(container_path=f"/dev/{name}", host_path=host, permissions="rw") for name in names
            ]
            response.devices.extend(specs)
            return response
        # Files are mounted, not handed over as device nodes: a container runtime would make a node of its own from the
        # numbers, and there are no numbers; mounted, each file is the very one that `unload` looks for in open files.
        folder = devices.folder(Path(RUN_DIRECTORY))
        response.mounts.extend(
            messages.Mount(container_path=f"/dev/{name}", host_path=str(folder / name)) for name in names
        )
        return response


class DevicePlugin(services.DevicePluginServicer):
    """One registration's worth of the service.

    `shown` is set once the kubelet has been sent the devices, `dropped` when it listens no more.
    """

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._stopped = threading.Event()
        self.shown = threading.Event()
        self.dropped = threading.Event()

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
        context.add_callback(self.dropped.set)
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
        return messages.AllocateResponse(container_responses=[self._offer.handed_in(names) for names in wanted])
