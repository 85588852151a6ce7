"""The devices of each pod, and the devices that the kubelet advertises, from its pod resources API."""

from pathlib import Path

import grpc
from msgspec import Struct

from upgrader.core.node_protocol.gpu_resources import is_gpu
from upgrader.node.proto import podresources_pb2 as messages
from upgrader.node.proto import podresources_pb2_grpc as services

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
"""Socket of the API of a kubelet with the default --root-dir."""

TIMEOUT = 5.0
"""Timeout of a request, in seconds."""

_LARGEST = 64 << 20
"""Limit of a response, in bytes. The default of gRPC, 4 MiB, is too small for many pods with many devices."""


class DeviceUse(Struct, frozen=True, kw_only=True):
    """A device of a container, by its ID in the plugin."""

    device: str
    namespace: str
    pod: str
    container: str


class PodResources:
    """The pod resources API of the kubelet. Each request opens a connection: a restarted kubelet has another socket.

    Args:
        socket: socket of the kubelet.
        resource: extended resource of the devices; their partitions are included.
    """

    def __init__(self, socket: Path, resource: str) -> None:
        self._socket = socket
        self._resource = resource

    def list_uses(self) -> tuple[DeviceUse, ...]:
        """The devices of all containers; a shared device once for each container.

        Raises:
            grpc.RpcError: the request failed.
        """
        with self._channel() as channel:
            stub = services.PodResourcesListerStub(channel)
            response = stub.List(messages.ListPodResourcesRequest(), timeout=TIMEOUT)
        return tuple(
            DeviceUse(device=device, namespace=pod.namespace, pod=pod.name, container=container.name)
            for pod in response.pod_resources
            for container in pod.containers
            for entry in container.devices
            if is_gpu(entry.resource_name, self._resource)
            for device in entry.device_ids
        )

    def list_allocatable(self) -> dict[str, str]:
        """The healthy devices, including those in use: the extended resource of each device by its ID.

        Raises:
            grpc.RpcError: the request failed.
        """
        with self._channel() as channel:
            stub = services.PodResourcesListerStub(channel)
            response = stub.GetAllocatableResources(messages.AllocatableResourcesRequest(), timeout=TIMEOUT)
        entries = (entry for entry in response.devices if is_gpu(entry.resource_name, self._resource))
        return {device: entry.resource_name for entry in entries for device in entry.device_ids}

    def _channel(self) -> grpc.Channel:
        # The default authority of grpc is the path of the socket, which the server of the kubelet rejects.
        options = [
            ("grpc.default_authority", "localhost"),
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", _LARGEST),
        ]
        return grpc.insecure_channel(f"unix://{self._socket}", options=options)
