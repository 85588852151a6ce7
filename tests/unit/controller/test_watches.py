"""Watches that the API server refuses in ways that kopf does not expect: begun anew, and nobody else is ended."""

import asyncio
import contextlib
import gc
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from upgrader.controller import rim
from upgrader.kube.connect import Access
from upgrader.telemetry import metrics

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
    """Serves our kinds, without objects; the first `refusals` watches of each kind are answered with `status`."""

    def __init__(self, refusals, status=410):
        self.refusals = {kind.plural: refusals for kind in rim.WATCHED}
        self.status = status

    def answer(self, path):
        core = ["Namespace", "Event"]
        watched_kinds = [one.kind for one in rim.WATCHED]
        return {
            "/api": {"versions": ["v1"]},
            "/api/v1": _resources(core),
            "/apis": {"groups": [_group(GROUP), _group(DEFINITIONS)]},
            f"/apis/{GROUP}": _resources(watched_kinds),
            f"/apis/{DEFINITIONS}": _resources(["CustomResourceDefinition"]),
        }.get(path, LIST)

    async def handle(self, request):
        if request.query.get("watch") != "true":
            return web.json_response(self.answer(request.path))
        plural = request.path.rpartition("/")[2]
        if self.refusals[plural]:
            self.refusals[plural] -= 1
            return web.json_response({**GONE, "code": self.status}, status=self.status)
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

    def wake(self, kind, name, within=0.0):
        self.seen.put_nowait((kind, name))

    def wake_all(self, kind, within=0.0):
        """Not looked at here."""


class Clock:
    """Seconds since a while; each look at it takes some."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


@contextlib.asynccontextmanager
async def served(refusing):
    """Where an API server can be reached, as the watches take it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refusing.handle)
    async with TestServer(app, handler_cancellation=True, shutdown_timeout=0.1) as server:

        class Connected:
            async def access(self):
                return Access(server=str(server.make_url("")).rstrip("/"))

        yield Connected()


@contextlib.asynccontextmanager
async def running(*coroutines):
    tasks = [asyncio.create_task(one) for one in coroutines]
    await asyncio.sleep(0)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def restarts():
    return metrics.REGISTRY.get_sample_value("upgrader_watch_restarts_total")


@pytest.mark.timeout(120)
async def test_watches_that_are_refused_as_expired_are_begun_anew_and_the_loops_go_on():
    async with served(ApiServer(refusals=2)) as connected:
        woken, begun = Woken(), []
        watches = rim.run_watches(woken, connected, lambda: begun.append(1), pause=lambda _: 0.01)
        async with running(watches, asyncio.Event().wait()) as (_, loop):
            while await woken.seen.get() != ("GpuStack", "gpustacks"):
                pass  # of another kind
            assert len(begun) > 1
            assert not loop.done()
        assert [one.get_name() for one in asyncio.all_tasks() if rim._is_of_kopf(one)] == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("step", "failures"), [(1.0, [1, 2, 3]), (rim.STEADY_SECONDS, [1, 1, 1])], ids=["at once", "after they worked"]
)
async def test_watches_that_are_refused_for_good_pause_longer_each_time_and_are_counted(step, failures, caplog):
    seen, before = asyncio.Queue(), restarts()

    def pause(count):
        seen.put_nowait(count)
        return 0.0

    async with served(ApiServer(refusals=1000, status=401)) as connected:
        watches = rim.run_watches(Woken(), connected, lambda: None, pause=pause, clock=Clock(step))
        async with running(watches):
            assert [await seen.get() for _ in failures] == failures
    assert restarts() - before >= len(failures)
    gc.collect()  # of the tasks that kopf dropped; a traceback then would be formatted inside of any other code
    assert [record for record in caplog.records if "never retrieved" in record.getMessage()] == []


def test_the_pause_doubles_up_to_a_minute():
    assert [rim.restart_pause(count) for count in (1, 2, 3, 6, 7, 8, 10**6)] == [1.0, 2.0, 4.0, 32.0, 60.0, 60.0, 60.0]
