"""Address and credentials of the API server: from a kubeconfig, found as by kubectl, or from the service account."""

import os
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, InClusterConfigLoader
from msgspec import Struct

from upgrader.core.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Mount of the token of the ServiceAccount and of the CA certificate of the API server."""


class Access(Struct, frozen=True, kw_only=True):
    """Address and credentials of the API server, for other clients; files are PEM."""

    server: str
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    token: str | None = None
    insecure: bool = False

    def __repr__(self) -> str:
        """Without the token, since tracebacks and logs contain values."""
        return f"Access(server={self.server!r})"


class ApiServerLogin:
    """Loads the configuration, also again when the API server rejects it (tokens of exec plugins expire)."""

    def __init__(
        self, kubeconfig: str | None = None, context: str | None = None, *, service_account: Path = SERVICE_ACCOUNT
    ) -> None:
        self._kubeconfig = kubeconfig or _default_kubeconfig()
        self._context = context
        self._service_account = service_account
        self.configuration: Any = Configuration()

    async def load(self) -> None:
        """Fill `configuration`.

        Raises:
            ConfigurationError: there is no kubeconfig and no service account, or it cannot be used.
        """
        try:
            await self._load()
        except (config.ConfigException, yaml.YAMLError, OSError) as error:
            raise self._unusable_error(str(error)) from error
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            # Errors of the library for an invalid file. They are not chained, since they may contain a token.
            raise self._unusable_error(f"a part of it cannot be read ({type(error).__name__})") from None

    async def _load(self) -> None:
        if self._kubeconfig is not None:
            await config.load_kube_config(
                config_file=self._kubeconfig,
                context=self._context,
                client_configuration=self.configuration,
                persist_config=False,
            )
        elif os.environ.get(SERVICE_HOST_ENV_NAME):
            token, certificate = (str(self._service_account / name) for name in ("token", "ca.crt"))
            InClusterConfigLoader(token, certificate).load_and_set(self.configuration)
        else:
            raise ConfigurationError(
                "no cluster is configured",
                details="there is no --kubeconfig, no KUBECONFIG, no ~/.kube/config, and this is not a pod",
                resolution="Specify a kubeconfig, or start a development cluster: `upgrader dev up`.",
            )

    def _unusable_error(self, details: str) -> ConfigurationError:
        if self._kubeconfig is not None:
            return ConfigurationError(
                f"the kubeconfig {self._kubeconfig} cannot be used",
                details=details,
                resolution="Specify one that works with kubectl with --kubeconfig, or a context of it with --context.",
            )
        return ConfigurationError(
            f"the service account in {self._service_account} cannot be used",
            details=details,
            resolution="Mount its token into the pod (automountServiceAccountToken), or specify a kubeconfig.",
        )

    async def access(self) -> Access:
        """The loaded configuration."""
        loaded = self.configuration
        token = (await loaded.auth_settings()).get("BearerToken", {}).get("value")
        return Access(
            server=loaded.host,
            ca_file=loaded.ssl_ca_cert,
            certificate_file=loaded.cert_file,
            key_file=loaded.key_file,
            token=token.split(None, 1)[-1] if token else None,
            insecure=not loaded.verify_ssl,
        )


def _default_kubeconfig() -> str | None:
    """The kubeconfig of kubectl: KUBECONFIG (a list of files), else ~/.kube/config if it exists."""
    if named := os.environ.get("KUBECONFIG"):
        return named
    usual = Path.home() / ".kube" / "config"
    return str(usual) if usual.exists() else None
