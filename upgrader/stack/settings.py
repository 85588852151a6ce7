"""What rendering needs beside the objects themselves."""

from msgspec import Struct


class StackSettings(Struct, frozen=True, kw_only=True):
    """Settings of everything that we make on nodes.

    `node_image` is the upgrader's own image by digest: prepare, visit and validation pods run from it. Nothing on a
    node speaks to the API server as `service_account`: policies name it, its token is not mounted.
    """

    node_image: str
    namespace: str = "gpu-upgrader-system"
    service_account: str = "gpu-upgrader-node"
    priority_class: str = "system-node-critical"
