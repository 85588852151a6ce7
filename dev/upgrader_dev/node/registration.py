"""Registration of a device plugin, repeated for each kubelet: a kubelet removes all sockets of plugins at its start."""

import logging
from concurrent import futures
from pathlib import Path

import grpc

from upgrader.node.host.clock import NodeClock
from upgrader_dev.node.device_plugin import AdvertisedDevices, DevicePlugin
from upgrader_dev.node.plugin_liveness import KUBELET_SOCKET, KubeletIdentity, kubelet_identity
from upgrader_dev.node.proto import deviceplugin_pb2 as messages
from upgrader_dev.node.proto import deviceplugin_pb2_grpc as services

API_VERSION = "v1beta1"
POLL_SECONDS = 0.5
RETRY_SECONDS = 0.5
LIST_SECONDS = 10.0
"""Time for the kubelet to open the list of devices. A kubelet that removes an earlier plugin of the resource may
remove the new one with it, without an error.
"""
TIMEOUT = 5.0
_log = logging.getLogger(__name__)


class Registration:
    """Serves the plugin on a socket beside kubelet.sock and registers it with each kubelet.

    Args:
        offer: the devices.
        folder: device-plugins directory of the kubelet.
    """

    def __init__(self, offer: AdvertisedDevices, *, folder: Path, clock: NodeClock) -> None:
        self._offer = offer
        self._folder = folder
        self._clock = clock
        self._registered_with: KubeletIdentity | None = None
        self._endpoint = f"upgrader-sim-{offer.resource.replace('/', '-')}.sock"

    def ready(self) -> bool:
        """Whether the devices were sent to the current kubelet."""
        return self._registered_with is not None and self._registered_with == kubelet_identity(self._folder)

    def serve_one_kubelet(self) -> None:
        """Wait for a kubelet, register, and return when the kubelet ends or is replaced."""
        kubelet = self._wait_for_kubelet()
        plugin, server = self._start_server()
        try:
            self._register_plugin()
            registered_at = self._clock.monotonic()
            while (
                kubelet_identity(self._folder) == kubelet and self._socket.exists() and not plugin.stream_ended.is_set()
            ):
                if not plugin.devices_sent.is_set() and self._clock.monotonic() - registered_at > LIST_SECONDS:
                    _log.warning("the kubelet accepted the registration and did not request the devices")
                    break
                if plugin.devices_sent.is_set() and self._registered_with is None:
                    self._registered_with = kubelet
                    _log.info("registered %s x %d (simulated devices)", self._offer.resource, self._offer.count)
                self._clock.wait(POLL_SECONDS)
            _log.info("the kubelet ended, restarted or removed the plugin; registering again")
        except grpc.RpcError as error:
            _log.warning("the kubelet rejected the registration: %s", error)
            self._clock.wait(RETRY_SECONDS)
        finally:
            self._registered_with = None
            plugin.stop()
            server.stop(grace=None).wait()

    @property
    def _socket(self) -> Path:
        return self._folder / self._endpoint

    def _wait_for_kubelet(self) -> KubeletIdentity:
        while True:
            kubelet = kubelet_identity(self._folder)
            if kubelet is not None:
                return kubelet
            self._clock.wait(POLL_SECONDS)

    def _start_server(self) -> tuple[DevicePlugin, grpc.Server]:
        self._socket.unlink(missing_ok=True)
        plugin = DevicePlugin(self._offer)
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        services.add_DevicePluginServicer_to_server(plugin, server)
        server.add_insecure_port(f"unix://{self._socket}")
        server.start()
        return plugin, server

    def _register_plugin(self) -> None:
        request = messages.RegisterRequest(
            version=API_VERSION, endpoint=self._endpoint, resource_name=self._offer.resource
        )
        # The default authority of grpc is the path of the socket, which the server of the kubelet rejects.
        options = [("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"unix://{self._folder / KUBELET_SOCKET}", options=options) as channel:
            services.RegistrationStub(channel).Register(request, timeout=TIMEOUT)
