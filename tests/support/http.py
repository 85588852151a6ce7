"""A scripted HTTP server in the place of the API server, and a kubeconfig that leads to it."""

import yaml
from aiohttp import web


class Stub:
    """Answers the n-th request with the n-th of `answers` (the last one again after that) and keeps what was asked."""

    def __init__(self):
        self.answers = []
        self.requests = []
        self.raw = []
        """Paths as they came, nothing decoded."""

    async def handle(self, request):
        self.raw.append(request.raw_path)
        self.requests.append((request.method, request.path_qs, await request.text(), dict(request.headers)))
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        return answer if not callable(answer) else await answer(request)


def json(body, status=200, **headers):
    return lambda _request: _respond(body, status, headers)


async def _respond(body, status, headers):
    return web.json_response(body, status=status, headers=headers)


def write_kubeconfig(path, server, token="t0"):  # noqa: S107 - of a stub
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )
    return str(path)
