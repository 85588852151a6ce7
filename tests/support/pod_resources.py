"""The kubelet's pod resources API, as far as our programs on a node ask it."""

from concurrent import futures
from pathlib import Path

import grpc

from upgrader.node.proto import podresources_pb2 as messages
from upgrader.node.proto import podresources_pb2_grpc as services

RESOURCE = "nvidia.com/gpu"


class KubeletPods(services.PodResourcesListerServicer):
    """Answers on a socket, as a kubelet does; `given` are (namespace, pod, container) by device id."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "kubelet.sock"
        self.given: dict[str, tuple[str, str, str]] = {}
        self.offered: list[str] = []
        self._server: grpc.Server | None = None

    def start(self) -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        services.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{self.socket}")
        self._server.start()

    def stop(self) -> None:
        """As often as wanted."""
        if self._server is not None:
            self._server.stop(grace=None).wait()
        self.socket.unlink(missing_ok=True)

    def List(self, request, context):  # noqa: N802 - the API's name
        pods = []
        for identifier, (namespace, pod, container) in self.given.items():
            devices = [
                messages.ContainerDevices(resource_name="example.com/fpga", device_ids=["sim-gpu0"]),
                messages.ContainerDevices(resource_name=RESOURCE, device_ids=[identifier]),
            ]
            containers = [messages.ContainerResources(name=container, devices=devices)]
            pods.append(messages.PodResources(name=pod, namespace=namespace, containers=containers))
        return messages.ListPodResourcesResponse(pod_resources=pods)

    def GetAllocatableResources(self, request, context):  # noqa: N802 - the API's name
        devices = [messages.ContainerDevices(resource_name=RESOURCE, device_ids=[one]) for one in self.offered]
        others = [messages.ContainerDevices(resource_name="example.com/fpga", device_ids=["fpga-0"])]
        return messages.AllocatableResourcesResponse(devices=[*devices, *others])
