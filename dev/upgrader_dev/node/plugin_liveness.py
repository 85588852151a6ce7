"""Identity of the kubelet that a device plugin is registered with, and the HTTP server for its readiness probe.

An exec probe would start a process, which costs a busy node more CPU time than the plugin.
"""

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from msgspec import Struct

KUBELET_SOCKET = "kubelet.sock"
READY_PATH = "/ready"


class KubeletIdentity(Struct, frozen=True, kw_only=True):
    """Identity of a kubelet.sock: inode numbers alone are reused."""

    inode: int
    changed_ns: int


def kubelet_identity(folder: Path) -> KubeletIdentity | None:
    """Identity of the current kubelet.sock; None if it does not exist."""
    try:
        facts = (folder / KUBELET_SOCKET).stat()
    except FileNotFoundError:
        return None
    return KubeletIdentity(inode=facts.st_ino, changed_ns=facts.st_ctime_ns)


class _Server(ThreadingHTTPServer):
    """Listens on IPv4 and IPv6 if the machine has both: the address of a pod may be of either family."""

    address_family: int = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def start_probe_server(ready: Callable[[], bool], port: int) -> ThreadingHTTPServer:
    """Start a server that answers GET READY_PATH with 200 if `ready` returns true, else with 503, in daemon threads."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            well = self.path == READY_PATH and ready()
            self.send_response(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Do not log requests: probes are frequent."""

    server = _Server(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
