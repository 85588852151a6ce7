"""Which kubelet a device plugin is registered with, and the answer to whoever asks whether it still is.

Asked over HTTP, since a probe that starts a process costs a busy node more than the plugin itself does.
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


class Identity(Struct, frozen=True, kw_only=True):
    """Which kubelet.sock: inode numbers alone are used again."""

    inode: int
    changed_ns: int


def identity(folder: Path) -> Identity | None:
    """The kubelet.sock that is there now; None where none is."""
    try:
        facts = (folder / KUBELET_SOCKET).stat()
    except FileNotFoundError:
        return None
    return Identity(inode=facts.st_ino, changed_ns=facts.st_ctime_ns)


class _Server(ThreadingHTTPServer):
    """On both families where the machine has both: a pod's address may be of either."""

    address_family: int = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def answer_probes(ready: Callable[[], bool], port: int) -> ThreadingHTTPServer:
    """Answer GET READY_PATH with 200 while `ready` says so, else with 503; in threads that end with the process."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            well = self.path == READY_PATH and ready()
            self.send_response(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Probes come every second or two."""

    server = _Server(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
