"""The `sim` device plugin: real gRPC to the device manager of the kubelet, with simulated devices.

It advertises a fixed number of devices. A device is healthy while the loaded driver has its file and the `unhealthy`
file does not contain its name. A container gets the device files and the list of their names.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
from msgspec import Struct

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.node.validation import devices
from upgrader_dev.node.proto import deviceplugin_pb2 as messages
from upgrader_dev.node.proto import deviceplugin_pb2_grpc as services
from upgrader_dev.node.runtime import KIND, read_hook_record

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
POLL_SECONDS = 1.0


class AdvertisedDevices(Struct, frozen=True, kw_only=True):
    """The devices that the plugin advertises; `run` is RUN_DIRECTORY of the node in this container.

    `driver` is the vendor of the loaded driver: a simulated one has a file for each device, a real one only a record.
    `slices` is the number of shares of each device; the name of a share is that of the device with `::` and a number,
    as in the plugin of NVIDIA. `cdi`: containers get names of CDI devices, if the runtime hook has detected that the
    container runtime supports them.
    """

    resource: str
    count: int
    run: Path
    driver: str = devices.VENDOR
    cdi: bool = False
    slices: int = 1

    def health(self) -> dict[str, str]:
        """HEALTHY or UNHEALTHY, by name of the device or share."""
        names = [devices.device_name(number) for number in range(self.count)]
        present = {name for name in names if self._is_present(name)}
        healthy = present - devices.unhealthy_devices(self.run).keys()
        return {part: HEALTHY if name in healthy else UNHEALTHY for name in names for part in self._share_names(name)}

    def _share_names(self, name: str) -> list[str]:
        return [name] if self.slices == 1 else [f"{name}{devices.SHARED}{number}" for number in range(self.slices)]

    def _is_present(self, name: str) -> bool:
        """Whether the driver is loaded and has a device."""
        if self.driver == devices.VENDOR:
            return (devices.device_folder(self.run) / name).exists()
        return (self.run / self.driver / "loaded.json").exists()

    def container_response(self, names: list[str]) -> messages.ContainerAllocateResponse:
        """The response for a container with these devices or shares; each device is contained once."""
        names = sorted({name.partition(devices.SHARED)[0] for name in names})
        response = messages.ContainerAllocateResponse(envs={devices.VISIBLE: ",".join(names)})
        hook = read_hook_record(self.run, self.driver) if self.cdi else None
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
        # The files are mounted, since they are not device nodes; a mounted file has the inode that `unload` searches
        # among open files.
        folder = devices.device_folder(Path(RUN_DIRECTORY))
        response.mounts.extend(
            messages.Mount(container_path=f"/dev/{name}", host_path=str(folder / name)) for name in names
        )
        return response


class DevicePlugin(services.DevicePluginServicer):
    """The service for one registration.

    `devices_sent` is set when the devices were sent to the kubelet, `stream_ended` when the kubelet ends the stream.
    """

    def __init__(self, offer: AdvertisedDevices) -> None:
        self._offer = offer
        self._stopped = threading.Event()
        self.devices_sent = threading.Event()
        self.stream_ended = threading.Event()

    def stop(self) -> None:
        """End the streams."""
        self._stopped.set()

    def GetDevicePluginOptions(  # noqa: N802 - the API's name
        self, _request: messages.Empty, _context: grpc.ServicerContext
    ) -> messages.DevicePluginOptions:
        """The plugin has no optional features."""
        return messages.DevicePluginOptions()

    def ListAndWatch(  # noqa: N802 - the API's name
        self, _request: messages.Empty, context: grpc.ServicerContext
    ) -> Iterator[messages.ListAndWatchResponse]:
        """Send all devices, and again when the health of a device changes."""
        context.add_callback(self.stream_ended.set)
        last: dict[str, str] = {}
        while context.is_active() and not self._stopped.is_set():
            health = self._offer.health()
            if health != last:
                last = health
                yield messages.ListAndWatchResponse(
                    devices=[messages.Device(ID=name, health=state) for name, state in health.items()]
                )
                self.devices_sent.set()
            self._stopped.wait(POLL_SECONDS)

    def Allocate(  # noqa: N802 - the API's name
        self, request: messages.AllocateRequest, context: grpc.ServicerContext
    ) -> messages.AllocateResponse:
        """The device files and their names, for each container of a pod."""
        known = self._offer.health()
        requested = [sorted(container.devices_ids) for container in request.container_requests]
        unknown = sorted({name for names in requested for name in names} - set(known))
        if unknown:
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown devices: {', '.join(unknown)}")
        return messages.AllocateResponse(
            container_responses=[self._offer.container_response(names) for names in requested]
        )
