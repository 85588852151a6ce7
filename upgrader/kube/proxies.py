"""The proxy between here and the API server, found once: from the kubeconfig, else from the environment.

aiohttp's own `trust_env` looks at the environment and at a netrc file before each request, in a thread: a third of the
processor time of a rollout. It also refuses each request with a bearer token where the netrc file names the server.
"""

from typing import Any
from urllib.request import getproxies, proxy_bypass

from yarl import URL


def session_settings(server: str, configured: str | None) -> dict[str, Any]:
    """Arguments of an aiohttp session to one API server.

    Args:
        server: its URL.
        configured: the proxy of the kubeconfig (`proxy-url`), which is used for every server.
    """
    url = URL(server)
    found = configured or _from_environment(url)
    return {"trust_env": False} | ({"proxy": URL(found)} if found else {})


def _from_environment(url: URL) -> str | None:
    """`HTTPS_PROXY` (or that of another scheme), unless `NO_PROXY` names the server."""
    host = url.host or ""
    return None if proxy_bypass(f"{host}:{url.port}") else getproxies().get(url.scheme)
