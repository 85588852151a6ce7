"""The credentials of the kubelet for the API server, from its kubeconfig.

A kubeconfig with an `exec` plugin is not supported; the prepare pod reports that before anything is changed.
"""

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.orders import Reason
from upgrader.core.untrusted import is_sendable
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError

Bytes64 = Annotated[str, msgspec.Meta(description="base64")]


class _Cluster(Struct, frozen=True, kw_only=True, rename="kebab"):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: Bytes64 = ""


class _User(Struct, frozen=True, kw_only=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: Bytes64 = ""
    client_key: str = ""
    client_key_data: Bytes64 = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")

    def __repr__(self) -> str:
        """Without key and token, since tracebacks and logs contain values."""
        return "_User()"


class _Context(Struct, frozen=True, kw_only=True):
    cluster: str
    user: str


class _NamedCluster(Struct, frozen=True, kw_only=True):
    name: str
    cluster: _Cluster


class _NamedUser(Struct, frozen=True, kw_only=True):
    name: str
    user: _User


class _NamedContext(Struct, frozen=True, kw_only=True):
    name: str
    context: _Context


class _Kubeconfig(Struct, frozen=True, kw_only=True, rename="kebab"):
    clusters: tuple[_NamedCluster, ...]
    users: tuple[_NamedUser, ...]
    contexts: tuple[_NamedContext, ...]
    current_context: str


class ApiAccess(Struct, frozen=True, kw_only=True):
    """Address and credentials of the API server."""

    server: str
    context: ssl.SSLContext
    token: str = ""

    def __repr__(self) -> str:
        """Without token, as in _User."""
        return f"Access(server={self.server!r})"


_Named = TypeVar("_Named", _NamedCluster, _NamedUser, _NamedContext)


def read_access(host: Host, kubeconfig: str) -> ApiAccess:
    """Read a kubeconfig of the node; relative paths start at its folder.

    Raises:
        OrderFailedError: it does not exist, is invalid, or is not supported.
    """
    try:
        config = msgspec.yaml.decode(host.path(kubeconfig).read_bytes(), type=_Kubeconfig)
        context = _find_entry(config.contexts, config.current_context).context
        cluster = _find_entry(config.clusters, context.cluster).cluster
        user = _find_entry(config.users, context.user).user
        tls = _tls_context(host, Path(kubeconfig).parent, cluster, user)
        token = _read_token(host, Path(kubeconfig).parent, user)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:  # ssl, base64 errors are among these
        raise OrderFailedError(
            Reason.MISSING,
            f"kubeconfig {kubeconfig} of the kubelet cannot be used: {error}; the upgrade reads the Node with it",
        ) from error
    return ApiAccess(server=cluster.server, context=tls, token=token)


def _find_entry(entries: tuple[_Named, ...], name: str) -> _Named:
    for entry in entries:
        if entry.name == name:
            return entry
    raise ValueError(f"it has no entry named {name!r}")


def _read_text(host: Host, folder: Path, path: str) -> str:
    return host.path(str(folder / path)).read_text(encoding="utf-8").strip()


def _read_token(host: Host, folder: Path, user: _User) -> str:
    token = user.token or (_read_text(host, folder, user.token_file) if user.token_file else "")
    if token and not is_sendable(token):  # the error of an invalid header would contain it
        raise ValueError("its token contains characters other than visible ASCII")
    return token


def _tls_context(host: Host, folder: Path, cluster: _Cluster, user: _User) -> ssl.SSLContext:
    authority = base64.b64decode(cluster.certificate_authority_data).decode()
    if cluster.certificate_authority:
        authority = _read_text(host, folder, cluster.certificate_authority)
    context = ssl.create_default_context(cadata=authority or None)
    if user.client_certificate_data and user.client_key_data:
        with tempfile.TemporaryDirectory() as private:  # the ssl module reads keys from files only
            certificate, key = Path(private, "crt"), Path(private, "key")
            certificate.write_bytes(base64.b64decode(user.client_certificate_data))
            key.write_bytes(base64.b64decode(user.client_key_data))
            context.load_cert_chain(certificate, key)
    elif user.client_certificate and user.client_key:
        certificate, key = (host.path(str(folder / path)) for path in (user.client_certificate, user.client_key))
        context.load_cert_chain(certificate, key)
    elif not (user.token or user.token_file):
        raise ValueError("it contains neither a client certificate nor a token (`exec` plugins are not supported)")
    return context
