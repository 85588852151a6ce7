"""The HTTP proxy for the API server, read once: from the kubeconfig, else from the environment.

`trust_env` of aiohttp reads the environment and a netrc file before each request, in a thread: a third of the CPU time
of a rollout. It also rejects requests with a bearer token if the netrc file contains the server.
"""

from typing import Any
from urllib.request import getproxies, proxy_bypass

from yarl import URL


def session_settings(server: str, configured: str | None) -> dict[str, Any]:
    """Arguments of an aiohttp session to one API server.

    Args:
        server: URL of the API server.
        configured: the proxy of the kubeconfig (`proxy-url`), which has precedence.
    """
    url = URL(server)
    proxy = configured or _from_environment(url)
    return {"trust_env": False} | ({"proxy": URL(proxy)} if proxy else {})


def _from_environment(url: URL) -> str | None:
    """`HTTPS_PROXY` (or that of another scheme), unless `NO_PROXY` contains the server."""
    host = url.host or ""
    return None if proxy_bypass(f"{host}:{url.port}") else getproxies().get(url.scheme)
