"""Watches that the API server refuses in ways that kopf does not expect: begun anew, and nobody else is ended."""

import asyncio
import contextlib
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from upgrader.controller import rim
from upgrader.kube.connect import Access

GROUP = "gpu-upgrader.io/v1alpha1"
DEFINITIONS = "apiextensions.k8s.io/v1"
LIST = {"apiVersion": GROUP, "kind": "List", "metadata": {"resourceVersion": "7"}, "items": []}
GONE = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}


def _group(name):
    group, version = name.split("/")
    served = {"groupVersion": name, "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


def _resources(kinds):
    """As discovery lists them."""
    each = {"singularName": "", "namespaced": False, "verbs": ["get", "list", "watch", "patch"]}
    return {"resources": [{"name": f"{kind.lower()}s", "kind": kind, **each} for kind in kinds]}


class ApiServer:
    """Serves our kinds, without objects; the first `refusals` watches of each kind are answered with 410."""

    def __init__(self, refusals):
        self.refusals = {kind.plural: refusals for kind in rim.WATCHED}

    def answer(self, path):
        core = ["Namespace", "Event"]
        ours = [one.kind for one in rim.WATCHED]
        return {
            "/api": {"versions": ["v1"]},
            "/api/v1": _resources(core),
            "/apis": {"groups": [_group(GROUP), _group(DEFINITIONS)]},
            f"/apis/{GROUP}": _resources(ours),
            f"/apis/{DEFINITIONS}": _resources(["CustomResourceDefinition"]),
        }.get(path, LIST)

    async def handle(self, request):
        if request.query.get("watch") != "true":
            return web.json_response(self.answer(request.path))
        plural = request.path.rpartition("/")[2]
        if self.refusals[plural]:
            self.refusals[plural] -= 1
            return web.json_response(GONE, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        body = {"apiVersion": GROUP, "kind": "K", "metadata": {"name": plural, "uid": "1"}, "spec": {"stack": "s"}}
        event = {"type": "ADDED", "object": body}
        await response.write(json.dumps(event).encode() + b"\n")
        await asyncio.Event().wait()
        return response


class Woken:
    def __init__(self):
        self.seen = asyncio.Queue()

    def wake(self, kind, name):
        self.seen.put_nowait((kind, name))

    def wake_all(self, kind):
        """Not looked at here."""


@pytest.mark.timeout(120)
async def test_watches_that_are_refused_as_expired_are_begun_anew_and_the_loops_go_on():
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", ApiServer(refusals=2).handle)
    async with TestServer(app, handler_cancellation=True, shutdown_timeout=0.1) as server:

        class Connected:
            async def access(self):
                return Access(server=str(server.make_url("")).rstrip("/"))

        woken, begun = Woken(), []
        watches = rim.watch(woken, Connected(), lambda: begun.append(1), again_seconds=0.01)
        watching = asyncio.create_task(watches)
        await asyncio.sleep(0)
        loop = asyncio.create_task(asyncio.Event().wait(), name="a loop that was begun after the watches")
        try:
            while await woken.seen.get() != ("GpuStack", "gpustacks"):
                pass  # of another kind
            assert len(begun) > 1
            assert not loop.done()
        finally:
            for task in (watching, loop):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        assert [one.get_name() for one in asyncio.all_tasks() if rim._of_kopf(one)] == []
