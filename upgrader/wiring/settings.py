"""Settings of a controller, from the environment: frozen, checked once, all faults told at once.

Every variable has the prefix UPGRADER_; docs/reference/cli.md lists them and a test keeps the two equal.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.kube.lease import own_identity
from upgrader.kube.transport import REQUEST_SECONDS
from upgrader.telemetry.logs import LogFormat, LogLevel

PREFIX = "UPGRADER_"
SHORTEST_LEASE = int(REQUEST_SECONDS) + 2

_NAMESPACE = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_REPOSITORY = re.compile(r"^[A-Za-z0-9.-]+(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$")
_REGISTRY = re.compile(r"^[A-Za-z0-9.-]+(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$")
_OBJECT = re.compile(r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")
_QUANTITY = re.compile(r"^[0-9]+(\.[0-9]+)?(m|[kMGT]i?)?$")
_ADDRESS = re.compile(r"^(?P<host>[^\s:]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})$")


class Settings(Struct, frozen=True, kw_only=True):
    """What one controller process goes by; times in seconds."""

    namespace: str = "gpu-upgrader-system"
    node_image: str = ""  # image of prepare, upgrade and validation pods; a controller needs it
    operand_registry: str = ""  # registry, maybe with a path, of images that a stack names without one
    image_repository: str = ""  # registry/path of driver images: looked for, and pushed, there
    builder_image: str = ""  # image of build pods; without it nothing is built in the cluster
    build_at_once: int = 2  # most builds under way
    build_cpu: str = "2"  # of a build pod, as Kubernetes writes it
    build_memory: str = "4Gi"
    build_nodes: tuple[tuple[str, str], ...] = ()  # node selector of build pods
    signing: str = ""  # secret with cosign.key, cosign.pub and cosign.password, for build pods
    module_signing: str = ""  # secret with tls.key, tls.crt and maybe passphrase, for modules built by build pods
    push_auth: str = ""  # secret with .dockerconfigjson, for build pods
    image_key: str = ""  # file with the public key that driver images must be signed with
    cosign: str = "cosign"  # the program that verifies them, by path or on PATH
    insecure_registries: tuple[str, ...] = ()  # host:port of registries spoken to by plain HTTP
    active_seconds: float = 1.0  # pause between two looks while something is under way
    idle_seconds: float = 15.0  # and while nothing is
    notice_seconds: float = 30.0  # a phase that waits longer says in its status for what
    lease_seconds: int = 30
    identity: str = ""  # a name that only this process has
    listen_host: str = "127.0.0.1"
    listen_port: int = 0  # 0: a free one, which the log names
    stuck_seconds: float = 300.0  # /healthz fails when a step is overdue for longer
    log_format: LogFormat = LogFormat.JSON
    log_level: LogLevel = LogLevel.INFO


def read(environment: Mapping[str, str]) -> Settings:
    """Settings from the environment; a variable that is not set, or empty, has its default.

    Raises:
        ConfigurationError: with every fault that was found.
    """
    faults: list[str] = []
    values: dict[str, Any] = {}
    for variable, parse in VARIABLES.items():
        text = environment.get(variable, "").strip()
        if not text:
            continue
        try:
            values |= parse(text)
        except ValueError as error:
            faults.append(f"{variable}={text}: {error}")
    if values.get("builder_image") and not values.get("image_repository"):
        faults.append(f"{PREFIX}BUILDER_IMAGE is set: {PREFIX}IMAGE_REPOSITORY must say where images go")
    if faults:
        raise ConfigurationError(
            "the settings cannot be used",
            details="\n".join(faults),
            resolution="Correct or remove these variables; docs/reference/cli.md lists them all.",
        )
    return Settings(**({"identity": own_identity()} | values))


def _one(field: str, parse: Callable[[str], Any]) -> Callable[[str], dict[str, Any]]:
    return lambda text: {field: parse(text)}


def _like(pattern: re.Pattern[str], fault: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not pattern.match(text):
            raise ValueError(fault)
        return text

    return parse


def _image(text: str) -> str:
    if any(char.isspace() for char in text):
        raise ValueError("not an image reference")
    return text


def _pinned(text: str) -> str:
    if "@sha256:" not in _image(text):
        raise ValueError("not pinned: write name@sha256:<digest>, since what failed is built again by another builder")
    return text


def _builds(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise ValueError("not between 1 and 64")
    return value


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    odd = [key for key, equals, _ in pairs if not key or not equals]
    if odd:
        raise ValueError(f"{odd[0]} is no label=value")
    return tuple((key, value) for key, _, value in pairs)


def _hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(part.strip() for part in text.split(",") if part.strip())
    odd = [host for host in hosts if "/" in host]
    if odd:
        raise ValueError(f"{odd[0]} is no host:port")
    return hosts


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86400:
        raise ValueError("not between 0 and 86400 seconds")
    return value


def _lease(text: str) -> int:
    value = int(text)
    if not SHORTEST_LEASE <= value <= 3600:
        raise ValueError(f"not between {SHORTEST_LEASE} and 3600 seconds (requests may last {REQUEST_SECONDS:.0f})")
    return value


def _listen(text: str) -> dict[str, Any]:
    found = _ADDRESS.match(text)
    if found is None or int(found["port"]) > 65535:
        raise ValueError("no host:port")
    return {"listen_host": found["host"].strip("[]"), "listen_port": int(found["port"])}


def _choice(kind: type[LogFormat] | type[LogLevel]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:  # noqa: ANN401 - a member of `kind`
        try:
            return kind(text.lower())
        except ValueError:
            raise ValueError(f"not one of {', '.join(member.value for member in kind)}") from None

    return parse


def _identity(text: str) -> str:
    if len(text) > 200 or any(char.isspace() for char in text):
        raise ValueError("no name of at most 200 characters without spaces")
    return own_identity(text)


_namespace = _like(_NAMESPACE, "not the name of a namespace")
_repository = _like(_REPOSITORY, "not registry/path, as registry.example/drivers")
_registry = _like(_REGISTRY, "not a registry, as registry.example or registry.example:5000/mirror")
_secret = _like(_OBJECT, "not the name of a secret")
_quantity = _like(_QUANTITY, "not a quantity, as 500m, 2 or 4Gi")

VARIABLES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    f"{PREFIX}NAMESPACE": _one("namespace", _namespace),
    f"{PREFIX}NODE_IMAGE": _one("node_image", _image),
    f"{PREFIX}OPERAND_REGISTRY": _one("operand_registry", _registry),
    f"{PREFIX}IMAGE_REPOSITORY": _one("image_repository", _repository),
    f"{PREFIX}BUILDER_IMAGE": _one("builder_image", _pinned),
    f"{PREFIX}BUILD_AT_ONCE": _one("build_at_once", _builds),
    f"{PREFIX}BUILD_CPU": _one("build_cpu", _quantity),
    f"{PREFIX}BUILD_MEMORY": _one("build_memory", _quantity),
    f"{PREFIX}BUILD_NODES": _one("build_nodes", _labels),
    f"{PREFIX}SIGNING_SECRET": _one("signing", _secret),
    f"{PREFIX}MODULE_SIGNING_SECRET": _one("module_signing", _secret),
    f"{PREFIX}REGISTRY_SECRET": _one("push_auth", _secret),
    f"{PREFIX}IMAGE_KEY": _one("image_key", str),
    f"{PREFIX}COSIGN": _one("cosign", str),
    f"{PREFIX}INSECURE_REGISTRIES": _one("insecure_registries", _hosts),
    f"{PREFIX}ACTIVE_SECONDS": _one("active_seconds", _seconds),
    f"{PREFIX}IDLE_SECONDS": _one("idle_seconds", _seconds),
    f"{PREFIX}NOTICE_SECONDS": _one("notice_seconds", _seconds),
    f"{PREFIX}LEASE_SECONDS": _one("lease_seconds", _lease),
    f"{PREFIX}IDENTITY": _one("identity", _identity),
    f"{PREFIX}LISTEN": _listen,
    f"{PREFIX}STUCK_SECONDS": _one("stuck_seconds", _seconds),
    f"{PREFIX}LOG_FORMAT": _one("log_format", _choice(LogFormat)),
    f"{PREFIX}LOG_LEVEL": _one("log_level", _choice(LogLevel)),
}
