"""What rendering needs beside the objects themselves."""

from msgspec import Struct


class StackSettings(Struct, frozen=True, kw_only=True):
    """Settings of everything that we make on nodes.

    `node_image` is the upgrader's own image by digest: prepare, upgrade and validation pods run from it. Nothing on a
    node speaks to the API server as `service_account`: policies name it, its token is not mounted. Images that a stack
    names without a registry come from `registry`.
    """

    node_image: str
    namespace: str = "gpu-upgrader-system"
    service_account: str = "gpu-upgrader-node"
    priority_class: str = "system-node-critical"
    registry: str = ""


class BuildSettings(Struct, frozen=True, kw_only=True):
    """Where and how driver images are built in the cluster; without a builder image none are.

    `repository` is `registry/path`, where images are looked for, packages are read and images are pushed. The secrets
    are in `namespace`: `push_auth` of type kubernetes.io/dockerconfigjson, `signing` with the keys cosign.key,
    cosign.pub and cosign.password, `module_signing` of type kubernetes.io/tls, with the key and the certificate that
    modules are signed with, and maybe `passphrase`. `at_once` bounds the builds of a cluster.
    """

    repository: str = ""
    builder_image: str = ""
    namespace: str = "gpu-upgrader-system"
    service_account: str = "gpu-upgrader-node"
    signing: str = ""
    module_signing: str = ""
    push_auth: str = ""
    insecure_registries: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    cpu: str = "2"
    memory: str = "4Gi"
    at_once: int = 2
