"""Settings for rendering."""

from msgspec import Struct


class StackSettings(Struct, frozen=True, kw_only=True):
    """Settings of all pods on nodes.

    `node_image` is the node image by digest, for prepare, upgrade and validation pods. `service_account` is used by
    policies only; its token is not mounted. `registry` is the default registry of images without one.
    """

    node_image: str
    namespace: str = "gpu-upgrader-system"
    service_account: str = "gpu-upgrader-node"
    priority_class: str = "system-node-critical"
    registry: str = ""


class BuildSettings(Struct, frozen=True, kw_only=True):
    """Settings of builds of driver images in the cluster; without a builder image none are built.

    `repository` is `registry/path`, where images are searched, packages are read and images are pushed. The Secrets
    are in `namespace`: `push_auth` of type kubernetes.io/dockerconfigjson; `signing` with the keys cosign.key,
    cosign.pub and cosign.password; `module_signing` of type kubernetes.io/tls, with the key and certificate to sign
    modules with, and optionally `passphrase`. `max_concurrent` is the maximum number of concurrent builds.
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
    max_concurrent: int = 2
