"""Settings of a controller from the environment, which are checked at the start; one error contains all faults.

All variables have the prefix UPGRADER_; docs/reference/cli.md lists them, and a test compares both.
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
    """Settings of a controller process; times are in seconds."""

    namespace: str = "gpu-upgrader-system"
    node_image: str = ""  # image of prepare, upgrade and validation pods; required by a controller
    operand_registry: str = ""  # registry, optionally with a path, of images in stacks without a registry
    image_repository: str = ""  # registry/path where driver images are searched and pushed
    builder_image: str = ""  # image of build pods; without it no images are built in the cluster
    build_at_once: int = 2  # maximum number of concurrent builds
    build_cpu: str = "2"  # CPU of a build pod, as a Kubernetes quantity
    build_memory: str = "4Gi"
    build_nodes: tuple[tuple[str, str], ...] = ()  # node selector of build pods
    signing: str = ""  # secret with cosign.key, cosign.pub and cosign.password, for build pods
    module_signing: str = ""  # secret with tls.key, tls.crt and optionally passphrase, to sign modules in build pods
    push_auth: str = ""  # secret with .dockerconfigjson, for build pods
    image_key: str = ""  # file with the public key of the signatures of driver images
    cosign: str = "cosign"  # the program that verifies signatures, by path or in PATH
    insecure_registries: tuple[str, ...] = ()  # host:port of registries with plain HTTP
    active_seconds: float = 1.0  # pause between two steps of an object in progress
    idle_seconds: float = 15.0  # pause between two steps of an object that is not in progress
    notice_seconds: float = 30.0  # the status of a phase that waits longer contains the reason
    lease_seconds: int = 30
    identity: str = ""  # unique name of this process
    listen_host: str = "127.0.0.1"
    listen_port: int = 0  # 0: a free port, which is logged
    stuck_seconds: float = 300.0  # /healthz fails if a step is overdue for longer
    log_format: LogFormat = LogFormat.JSON
    log_level: LogLevel = LogLevel.INFO


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read the settings; a variable that is not set or empty has its default.

    Raises:
        ConfigurationError: settings are invalid; the error contains all faults.
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
        faults.append(f"{PREFIX}BUILDER_IMAGE requires {PREFIX}IMAGE_REPOSITORY, to which images are pushed")
    if faults:
        raise ConfigurationError(
            "the settings are invalid",
            details="\n".join(faults),
            resolution="Correct or remove these variables; docs/reference/cli.md lists them all.",
        )
    return Settings(**({"identity": own_identity()} | values))


def _field_parser(field: str, parse: Callable[[str], Any]) -> Callable[[str], dict[str, Any]]:
    return lambda text: {field: parse(text)}


def _pattern_parser(pattern: re.Pattern[str], fault: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not pattern.match(text):
            raise ValueError(fault)
        return text

    return parse


def _parse_image(text: str) -> str:
    if any(char.isspace() for char in text):
        raise ValueError("not an image reference")
    return text


def _parse_pinned_image(text: str) -> str:
    if "@sha256:" not in _parse_image(text):
        raise ValueError(
            "not pinned: use name@sha256:<digest>, since failed images are built again when the builder changes"
        )
    return text


def _parse_build_count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise ValueError("not between 1 and 64")
    return value


def _parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    odd = [key for key, equals, _ in pairs if not key or not equals]
    if odd:
        raise ValueError(f"{odd[0]} is not label=value")
    return tuple((key, value) for key, _, value in pairs)


def _parse_hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(part.strip() for part in text.split(",") if part.strip())
    odd = [host for host in hosts if "/" in host]
    if odd:
        raise ValueError(f"{odd[0]} is not host:port")
    return hosts


def _parse_seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86400:
        raise ValueError("not between 0 and 86400 seconds")
    return value


def _parse_lease(text: str) -> int:
    value = int(text)
    if not SHORTEST_LEASE <= value <= 3600:
        raise ValueError(f"not between {SHORTEST_LEASE} and 3600 seconds (requests may last {REQUEST_SECONDS:.0f})")
    return value


def _parse_listen(text: str) -> dict[str, Any]:
    match = _ADDRESS.match(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError("not host:port")
    return {"listen_host": match["host"].strip("[]"), "listen_port": int(match["port"])}


def _choice_parser(kind: type[LogFormat] | type[LogLevel]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:  # noqa: ANN401 - a member of `kind`
        try:
            return kind(text.lower())
        except ValueError:
            raise ValueError(f"not one of {', '.join(member.value for member in kind)}") from None

    return parse


def _parse_identity(text: str) -> str:
    if len(text) > 200 or any(char.isspace() for char in text):
        raise ValueError("not a name of at most 200 characters without spaces")
    return own_identity(text)


_parse_namespace = _pattern_parser(_NAMESPACE, "not the name of a namespace")
_parse_repository = _pattern_parser(_REPOSITORY, "not registry/path, for example registry.example/drivers")
_parse_registry = _pattern_parser(
    _REGISTRY, "not a registry, for example registry.example or registry.example:5000/mirror"
)
_parse_secret = _pattern_parser(_OBJECT, "not the name of a secret")
_parse_quantity = _pattern_parser(_QUANTITY, "not a quantity, for example 500m, 2 or 4Gi")

VARIABLES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    f"{PREFIX}NAMESPACE": _field_parser("namespace", _parse_namespace),
    f"{PREFIX}NODE_IMAGE": _field_parser("node_image", _parse_image),
    f"{PREFIX}OPERAND_REGISTRY": _field_parser("operand_registry", _parse_registry),
    f"{PREFIX}IMAGE_REPOSITORY": _field_parser("image_repository", _parse_repository),
    f"{PREFIX}BUILDER_IMAGE": _field_parser("builder_image", _parse_pinned_image),
    f"{PREFIX}BUILD_AT_ONCE": _field_parser("build_at_once", _parse_build_count),
    f"{PREFIX}BUILD_CPU": _field_parser("build_cpu", _parse_quantity),
    f"{PREFIX}BUILD_MEMORY": _field_parser("build_memory", _parse_quantity),
    f"{PREFIX}BUILD_NODES": _field_parser("build_nodes", _parse_labels),
    f"{PREFIX}SIGNING_SECRET": _field_parser("signing", _parse_secret),
    f"{PREFIX}MODULE_SIGNING_SECRET": _field_parser("module_signing", _parse_secret),
    f"{PREFIX}REGISTRY_SECRET": _field_parser("push_auth", _parse_secret),
    f"{PREFIX}IMAGE_KEY": _field_parser("image_key", str),
    f"{PREFIX}COSIGN": _field_parser("cosign", str),
    f"{PREFIX}INSECURE_REGISTRIES": _field_parser("insecure_registries", _parse_hosts),
    f"{PREFIX}ACTIVE_SECONDS": _field_parser("active_seconds", _parse_seconds),
    f"{PREFIX}IDLE_SECONDS": _field_parser("idle_seconds", _parse_seconds),
    f"{PREFIX}NOTICE_SECONDS": _field_parser("notice_seconds", _parse_seconds),
    f"{PREFIX}LEASE_SECONDS": _field_parser("lease_seconds", _parse_lease),
    f"{PREFIX}IDENTITY": _field_parser("identity", _parse_identity),
    f"{PREFIX}LISTEN": _parse_listen,
    f"{PREFIX}STUCK_SECONDS": _field_parser("stuck_seconds", _parse_seconds),
    f"{PREFIX}LOG_FORMAT": _field_parser("log_format", _choice_parser(LogFormat)),
    f"{PREFIX}LOG_LEVEL": _field_parser("log_level", _choice_parser(LogLevel)),
}
