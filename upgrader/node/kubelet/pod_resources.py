"""Which pod has which devices, and which devices are offered, by the kubelet's own word (its pod resources API)."""

from pathlib import Path

import grpc
from msgspec import Struct

from upgrader.core.node_protocol.gpu_resources import is_gpu
from upgrader.node.proto import podresources_pb2 as messages
from upgrader.node.proto import podresources_pb2_grpc as services

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
"""Where a kubelet with the default --root-dir serves it."""

TIMEOUT = 5.0
"""Seconds for one question."""

_LARGEST = 64 << 20
"""Bytes of one answer; gRPC's own limit of 4 MiB is too little for a node full of pods with many devices."""


class Use(Struct, frozen=True, kw_only=True):
    """A device in a container, by the id that its plugin gave it."""

    device: str
    namespace: str
    pod: str
    container: str


class PodResources:
    """The kubelet's pod resources API, asked anew each time: a kubelet that restarted has another socket.

    Args:
        socket: the kubelet's.
        resource: the extended resource whose devices are meant, with their partitions.
    """

    def __init__(self, socket: Path, resource: str) -> None:
        self._socket = socket
        self._resource = resource

    def uses(self) -> tuple[Use, ...]:
        """Every device that a container has; a shared one once for each container.

        Raises:
            grpc.RpcError: no answer.
        """
        with self._channel() as channel:
            stub = services.PodResourcesListerStub(channel)
            answer = stub.List(messages.ListPodResourcesRequest(), timeout=TIMEOUT)
        return tuple(
            Use(device=device, namespace=pod.namespace, pod=pod.name, container=container.name)
            for pod in answer.pod_resources
            for container in pod.containers
            for entry in container.devices
            if is_gpu(entry.resource_name, self._resource)
            for device in entry.device_ids
        )

    def offered(self) -> dict[str, str]:
        """Devices that the kubelet gives to pods: all that their plugin calls healthy, also those in use.

        By their ids, with the extended resource by which a pod asks for each.

        Raises:
            grpc.RpcError: no answer.
        """
        with self._channel() as channel:
            stub = services.PodResourcesListerStub(channel)
            answer = stub.GetAllocatableResources(messages.AllocatableResourcesRequest(), timeout=TIMEOUT)
        found = (entry for entry in answer.devices if is_gpu(entry.resource_name, self._resource))
        return {device: entry.resource_name for entry in found for device in entry.device_ids}

    def _channel(self) -> grpc.Channel:
        # Without this authority grpc sends the socket's path as one, which the kubelet's server refuses.
        options = [
            ("grpc.default_authority", "localhost"),
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", _LARGEST),
        ]
        return grpc.insecure_channel(f"unix://{self._socket}", options=options)
