"""A registry that requires a login: a proxy in front of one that does not."""

import base64
import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

USER, PASSWORD = "nodes", "not-a-secret"
_LOGIN = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
_PASSED_ON = ("Content-Type", "Docker-Content-Digest", "Docker-Distribution-Api-Version", "Content-Length")


@contextmanager
def login_proxy(registry: str, address: str) -> Iterator[str]:
    """Serve what `registry` (host:port, plain http) has to clients that log in; host and port of the proxy."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Requests are not logged."""

        def do_GET(self) -> None:
            if self.headers.get("Authorization") != _LOGIN:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="registry"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            connection = http.client.HTTPConnection(registry, timeout=60)
            wanted = {"Accept": ", ".join(self.headers.get_all("Accept", ["*/*"]))}
            connection.request(self.command, self.path, headers=wanted)
            answer = connection.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name in _PASSED_ON:
                if value := answer.getheader(name):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            connection.close()

        do_HEAD = do_GET  # noqa: N815 - the name of http.server

    server = ThreadingHTTPServer((address, 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{address}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
