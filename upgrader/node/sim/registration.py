"""Keeping a device plugin registered: a starting kubelet removes every plugin's socket and tells nobody."""

import logging
from concurrent import futures
from pathlib import Path

import grpc

from upgrader.node.host.clock import Clock
from upgrader.node.proto import deviceplugin_pb2 as messages
from upgrader.node.proto import deviceplugin_pb2_grpc as services
from upgrader.node.sim.device_plugin import DevicePlugin, Offer
from upgrader.node.sim.plugin_liveness import KUBELET_SOCKET, Identity, identity

API_VERSION = "v1beta1"
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 0.5
SHOWN_SECONDS = 10.0
"""A kubelet that is rid of an earlier plugin of this resource may drop the new one with it, and tells nobody."""
TIMEOUT = 5.0
_log = logging.getLogger(__name__)


class Registration:
    """Serves the plugin on a socket beside kubelet.sock and registers it, again with every kubelet that starts.

    Args:
        folder: the kubelet's device-plugins directory.
        offer: what is registered.
    """

    def __init__(self, offer: Offer, *, folder: Path, clock: Clock) -> None:
        self._offer = offer
        self._folder = folder
        self._clock = clock
        self._known_to: Identity | None = None
        self._endpoint = f"upgrader-sim-{offer.resource.replace('/', '-')}.sock"

    def ready(self) -> bool:
        """Whether the kubelet that runs now has been sent our devices."""
        return self._known_to is not None and self._known_to == identity(self._folder)

    def serve_one_kubelet(self) -> None:
        """Wait for a kubelet, register, and return when it is gone or another one took its place."""
        kubelet = self._wait_for_kubelet()
        plugin, server = self._start()
        try:
            self._register()
            asked = self._clock.monotonic()
            while identity(self._folder) == kubelet and self._own.exists() and not plugin.dropped.is_set():
                if not plugin.shown.is_set() and self._clock.monotonic() - asked > SHOWN_SECONDS:
                    _log.warning("the kubelet took the registration and does not ask for the devices")
                    break
                if plugin.shown.is_set() and self._known_to is None:
                    self._known_to = kubelet
                    _log.info("registered %s x %d (simulated devices)", self._offer.resource, self._offer.count)
                self._clock.wait(LOOK_SECONDS)
            _log.info("the kubelet ended, dropped us, or another one started: registering again")
        except grpc.RpcError as error:
            _log.warning("the kubelet does not take the registration: %s", error)
            self._clock.wait(AGAIN_SECONDS)
        finally:
            self._known_to = None
            plugin.stop()
            server.stop(grace=None).wait()

    @property
    def _own(self) -> Path:
        return self._folder / self._endpoint

    def _wait_for_kubelet(self) -> Identity:
        while True:
            kubelet = identity(self._folder)
            if kubelet is not None:
                return kubelet
            self._clock.wait(LOOK_SECONDS)

    def _start(self) -> tuple[DevicePlugin, grpc.Server]:
        self._own.unlink(missing_ok=True)
        plugin = DevicePlugin(self._offer)
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        services.add_DevicePluginServicer_to_server(plugin, server)
        server.add_insecure_port(f"unix://{self._own}")
        server.start()
        return plugin, server

    def _register(self) -> None:
        request = messages.RegisterRequest(
            version=API_VERSION, endpoint=self._endpoint, resource_name=self._offer.resource
        )
        # Without this authority grpc sends the socket's path as one, which the kubelet's server refuses.
        options = [("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"unix://{self._folder / KUBELET_SOCKET}", options=options) as channel:
            services.RegistrationStub(channel).Register(request, timeout=TIMEOUT)
