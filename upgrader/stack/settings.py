"""What rendering needs beside the objects themselves."""

from msgspec import Struct


class StackSettings(Struct, frozen=True, kw_only=True):
    """`node_image` is the upgrader's own image by digest: prepare, visit and validation run from it."""

    node_image: str
    namespace: str = "gpu-upgrader-system"
    service_account: str = "gpu-upgrader-node"
