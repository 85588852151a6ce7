"""The node cache against a scripted API server: in step or None, never in between."""

import asyncio
import contextlib

import msgspec
import pytest

from tests.support.waiting import eventually
from upgrader.api.kubernetes import Node, Pod
from upgrader.api.resources import PODS
from upgrader.core.errors import UnreachableError
from upgrader.kube.informer import IDLE_SECONDS, Informer, node_informer
from upgrader.kube.listing import Listing
from upgrader.telemetry import metrics


def node(name, version, **labels):
    return {"metadata": {"name": name, "resourceVersion": str(version), "labels": labels}}


class Script:
    """Lists what `nodes` holds; watches end, fail and send when the test says so."""

    def __init__(self):
        self.nodes = [node("a", 1), node("b", 2)]
        self.version = 10
        self.listings = 0
        self.watched_from = []
        self.failing = False
        self._sent = asyncio.Queue()

    async def listing(self, kind, namespace=""):
        self._fail()
        self.listings += 1
        items = [msgspec.convert(each, Node) for each in self.nodes]
        return Listing(items, str(self.version))

    @contextlib.asynccontextmanager
    async def watch(self, kind, resource_version, *, namespace="", seconds, idle_seconds):
        self._fail()
        self.watched_from.append(resource_version)
        yield self._lines()

    def _fail(self):
        if self.failing:
            raise UnreachableError("no program listens")

    async def _lines(self):
        while (line := await self._sent.get()) is not None:
            if isinstance(line, Exception):
                raise line
            yield line

    def send(self, type_, body):
        self._sent.put_nowait(msgspec.json.encode({"type": type_, "object": body}) + b"\n")

    def end(self, error=None):
        self._sent.put_nowait(error)


class Seconds:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
async def cache(script, seconds):
    made = node_informer(script, clock=seconds, pause=lambda _failures: 0.001)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def names(cache):
    snapshot = cache.snapshot()
    return None if snapshot is None else sorted(snapshot)


async def test_nothing_is_known_before_the_first_list(script):
    assert node_informer(script).snapshot() is None


async def test_what_happens_is_seen_and_snapshots_do_not_change(cache, script):
    first = await cache.wait(lambda nodes: "a" in nodes)
    script.send("ADDED", node("c", 11))
    script.send("MODIFIED", node("a", 12, pool="x"))
    script.send("DELETED", node("b", 13))
    last = await cache.wait(lambda nodes: "b" not in nodes)
    assert sorted(first) == ["a", "b"]
    assert {name: each.metadata.labels for name, each in last.items()} == {"a": {"pool": "x"}, "c": {}}
    assert last["a"].metadata.resource_version == "12"
    with pytest.raises(TypeError):
        last["d"] = last["a"]


async def test_a_heartbeat_wakes_nobody_but_keeps_the_version_current(cache, script):
    await cache.wait(lambda nodes: "a" in nodes)
    before = cache.changes
    script.send("MODIFIED", node("a", 11))

    async def version():
        return cache.snapshot()["a"].metadata.resource_version

    await eventually(version, lambda seen: seen == "11")
    assert cache.changes == before


async def test_a_watch_that_ends_goes_on_where_it_was(cache, script):
    await cache.wait(lambda nodes: "a" in nodes)
    script.send("BOOKMARK", node("", 40))
    script.end()

    async def watched():
        return script.watched_from

    await eventually(watched, lambda seen: seen == ["10", "40"])
    assert await names(cache) == ["a", "b"]
    assert script.listings == 1


@pytest.mark.parametrize(
    "loss",
    [
        lambda script: script.send("ERROR", {"code": 410, "message": "too old"}),
        lambda script: script.send("ERROR", {"code": 500, "message": "broken"}),
        lambda script: script.end(UnreachableError("reset")),
        lambda script: script._sent.put_nowait(b'{"type":"ADDED","object":{"metadata"'),
    ],
    ids=["expired", "broken", "reset", "cut off"],
)
async def test_a_lost_thread_makes_a_new_list_so_that_deletions_are_seen(cache, script, loss):
    await cache.wait(lambda nodes: "b" in nodes)
    script.nodes, script.version = [node("a", 1)], 50
    loss(script)
    assert sorted(await cache.wait(lambda nodes: "b" not in nodes)) == ["a"]
    assert script.listings == 2


async def test_while_the_api_server_is_away_nothing_is_known(cache, script):
    await cache.wait(lambda nodes: "a" in nodes)
    script.failing = True
    script.end()
    assert await eventually(lambda: names(cache), lambda seen: seen is None) is None
    assert metrics.REGISTRY.get_sample_value("upgrader_informer_synced", {"kind": "Node"}) == 0
    script.failing = False
    assert sorted(await cache.wait(lambda nodes: "a" in nodes)) == ["a", "b"]
    assert metrics.REGISTRY.get_sample_value("upgrader_informer_synced", {"kind": "Node"}) == 1


async def test_watches_that_end_at_once_are_no_being_in_step(cache, script):
    await cache.wait(lambda nodes: "a" in nodes)
    script.end()

    async def listings():
        return script.listings

    await eventually(listings, lambda count: count == 2)


async def test_silence_is_no_being_in_step(cache, script, seconds):
    """A process that was frozen wakes with old nodes: it may not use them."""
    await cache.wait(lambda nodes: "a" in nodes)
    seconds.now += IDLE_SECONDS + 1
    assert cache.snapshot() is None
    script.send("BOOKMARK", node("", 40))
    assert await eventually(lambda: names(cache)) == ["a", "b"]


async def test_who_waits_for_a_change_is_woken_by_it(cache, script):
    await cache.wait(lambda nodes: "a" in nodes)
    waiting = asyncio.create_task(cache.wait_for_change(cache.changes))
    script.send("ADDED", node("c", 11))
    assert await waiting == cache.changes


class Placed(Script):
    """The same with pods, and lists of one namespace."""

    def __init__(self):
        super().__init__()
        self.pods, self.asked = [pod("a", 1, "n1")], []

    async def listing(self, kind, namespace=""):
        self.asked.append((kind.kind, namespace))
        return Listing([msgspec.convert(each, Pod) for each in self.pods], str(self.version))


def pod(name, version, on):
    meta = {"name": name, "namespace": "ml", "resourceVersion": str(version), "uid": f"u-{name}"}
    return {"metadata": meta, "spec": {"nodeName": on}}


@pytest.fixture
async def pods():
    script = Placed()
    made = Informer(script, PODS, "ml", index=lambda one: one.spec.node_name, pause=lambda _failures: 0.001)
    running = asyncio.create_task(made.run())
    await made.wait(lambda seen: "ml/a" in seen)
    yield made, script
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def on(informer, node):
    return [one.metadata.name for one in informer.indexed(node)]


async def test_objects_are_found_by_an_index_that_follows_their_changes(pods):
    informer, script = pods
    assert (on(informer, "n1"), on(informer, "n2"), script.asked) == (["a"], [], [("Pod", "ml")])
    script.send("ADDED", pod("c", 11, "n1"))
    script.send("ADDED", pod("b", 12, "n1"))
    script.send("MODIFIED", pod("a", 13, "n2"))
    script.send("DELETED", pod("c", 14, "n1"))
    await informer.wait(lambda seen: "ml/b" in seen and "ml/c" not in seen)
    assert (on(informer, "n1"), on(informer, "n2")) == (["b"], ["a"])
    assert informer.find("a", "ml")[1].spec.node_name == "n2"
    assert informer.find("a") == (True, None), "of another namespace"
    assert informer._by_index.keys() == {"n1", "n2"}, "what nobody has any more is not kept"


async def test_out_of_step_nothing_is_found_by_no_way(pods):
    informer, script = pods
    script.failing = True
    script.end()

    async def known():
        return informer.snapshot()

    await eventually(known, lambda seen: seen is None)
    assert (informer.indexed("n1"), informer.find("a", "ml")) == (None, (False, None))


async def test_an_object_that_is_nested_too_deep_ends_no_controller(pods):
    """A tenant's: the objects are out of step until it is gone, and are read by requests meanwhile."""
    informer, script = pods
    deep = b"[" * 100_000 + b"]" * 100_000
    script._sent.put_nowait(b'{"type":"ADDED","object":{"metadata":{"name":"z"},"status":' + deep + b"}}")
    script.pods = [pod("b", 20, "n1")]
    assert sorted(await informer.wait(lambda seen: "ml/a" not in seen)) == ["ml/b"]
