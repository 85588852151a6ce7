"""The kubelet's side of the device plugin API, as far as a plugin sees it."""

import threading
from concurrent import futures
from pathlib import Path

import grpc

from upgrader_dev.node.proto import deviceplugin_pb2 as messages
from upgrader_dev.node.proto import deviceplugin_pb2_grpc as services


class DeviceManager(services.RegistrationServicer):
    """Takes registrations on kubelet.sock and dials back, as a kubelet does. `devices` is the last list it was sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registrations: list[messages.RegisterRequest] = []
        self.devices: dict[str, dict[str, str]] = {}
        self.refusing = False
        self.silent = False
        """Takes registrations and never asks for devices."""
        self._watches: list[threading.Thread] = []
        self._channels: list[grpc.Channel] = []
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """A starting kubelet removes every socket in its directory."""
        for socket in self.folder.glob("*.sock"):
            socket.unlink()
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        services.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{self.folder / 'kubelet.sock'}")
        self._server.start()

    def stop(self) -> None:
        """As often as wanted."""
        if self._server is not None:
            self._server.stop(grace=None).wait()
        for channel in self._channels:
            channel.close()
        for watch in self._watches:
            watch.join()
        self._watches, self._channels, self.devices = [], [], {}
        (self.folder / "kubelet.sock").unlink(missing_ok=True)

    def Register(self, request, context):  # noqa: N802 - the API's name
        if self.refusing:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no plugins today")
        self.registrations.append(request)
        if self.silent:
            return messages.Empty()
        channel = self._dial(request.endpoint)
        self._channels.append(channel)
        watch = threading.Thread(target=self._watch, args=(request.resource_name, channel))
        self._watches.append(watch)
        watch.start()
        return messages.Empty()

    def drop(self) -> None:
        """Close the connection to the plugin and stay: what a kubelet does that takes it for an earlier one."""
        self._channels[-1].close()

    def allocate(self, *containers: list[str]) -> messages.AllocateResponse:
        """What the last plugin hands into containers that got these devices."""
        requests = [messages.ContainerAllocateRequest(devices_ids=names) for names in containers]
        stub = services.DevicePluginStub(self._channels[-1])
        return stub.Allocate(messages.AllocateRequest(container_requests=requests), timeout=5)

    def options(self) -> messages.DevicePluginOptions:
        return services.DevicePluginStub(self._channels[-1]).GetDevicePluginOptions(messages.Empty(), timeout=5)

    def _dial(self, endpoint: str) -> grpc.Channel:
        options = [("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0)]
        return grpc.insecure_channel(f"unix://{self.folder / endpoint}", options=options)

    def _watch(self, resource: str, channel: grpc.Channel) -> None:
        try:
            for answer in services.DevicePluginStub(channel).ListAndWatch(messages.Empty()):
                self.devices[resource] = {device.ID: device.health for device in answer.devices}
        except (grpc.RpcError, ValueError):  # the stream ended, or was closed under it: the kubelet forgets the plugin
            self.devices.pop(resource, None)
