"""The controller as a process on a real API server: leading, handing over, losing the lease, being woken."""

import os
import signal
import sys

import pytest

from tests.support import manifests
from tests.support.waiting import eventually
from upgrader.api.resources import DRIVER_IMAGES, NAMESPACES
from upgrader.core.model.phases import DriverImagePhase
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader.process import daemon

pytestmark = [pytest.mark.cluster, pytest.mark.gate]

IMAGE = "127.0.0.1:1/upgrader@sha256:" + "0" * 64
SHORT_LEASE = 12
LONG_LEASE = 3600


class Process:
    """One `upgrader controller`."""

    def __init__(self, kubeconfig, namespace, log, **settings):
        self.log = log
        env = {
            "UPGRADER_NAMESPACE": namespace,
            "UPGRADER_NODE_IMAGE": IMAGE,
            "UPGRADER_INSECURE_REGISTRIES": "127.0.0.1:1",
            "UPGRADER_LEASE_SECONDS": str(SHORT_LEASE),
            "UPGRADER_IDLE_SECONDS": "3600",
            "UPGRADER_LOG_FORMAT": "text",
        }
        words = [sys.executable, "-m", "upgrader", "--kubeconfig", kubeconfig, "controller"]
        self.pid = daemon.start_daemon(words, log=log, env=env | settings)

    async def says(self, text, seconds=90):
        async def look():
            return self.log.read_text() if self.log.exists() else ""

        await eventually(look, lambda log: text in log, seconds)

    def signal(self, number):
        os.kill(self.pid, number)

    async def ended(self, seconds=90):
        """The exit status."""

        async def look():
            return os.waitpid(self.pid, os.WNOHANG)  # noqa: ASYNC222 - WNOHANG does not wait

        _, status = await eventually(look, lambda one: one[0] == self.pid, seconds)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
async def cluster(kubeconfig):
    async with await KubeCluster.connect(kubeconfig) as real:
        await install_kinds(real)
        yield real


@pytest.fixture
async def start(cluster, kubeconfig, tmp_path):
    """Start controllers of one namespace; all are ended."""
    name = f"controller-{os.getpid()}-{tmp_path.name[-8:].strip('_').replace('_', '-').lower()}"
    made = await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    started = []

    def begin(log, **settings):
        started.append(Process(kubeconfig, name, tmp_path / log, **settings))
        return started[-1]

    yield begin
    for one in started:
        if daemon.is_alive(one.pid):
            one.signal(signal.SIGKILL)
            await one.ended()
        daemon.reap_child(one.pid)
    await cluster.delete(NAMESPACES, made.metadata)


async def test_a_leader_that_is_told_to_end_hands_over_at_once(start):
    first = start("first", UPGRADER_LEASE_SECONDS=str(LONG_LEASE))
    await first.says("leading")
    second = start("second", UPGRADER_LEASE_SECONDS=str(LONG_LEASE))
    await second.says("waiting to lead")
    first.signal(signal.SIGTERM)
    assert await first.ended() == 0
    await second.says("leading")  # within far less than the lease
    second.signal(signal.SIGINT)
    assert await second.ended() == 0


async def test_a_leader_that_was_frozen_ends_when_it_wakes(start):
    first = start("first")
    await first.says("leading")
    second = start("second")
    await second.says("waiting to lead")
    first.signal(signal.SIGSTOP)
    await second.says("leading", SHORT_LEASE * 10)
    first.signal(signal.SIGCONT)
    assert await first.ended() == 1
    assert "the lease may have passed to another controller" in first.log.read_text()
    assert daemon.is_alive(second.pid)


async def test_an_event_wakes_and_kopf_writes_nothing(start, cluster):
    process = start("only")
    await process.says("leading")
    made = await cluster.create(DRIVER_IMAGES, manifests.driver_image(f"woken-{process.pid}"))
    try:

        async def look():
            return await cluster.get(DRIVER_IMAGES, made.metadata.name)

        seen = await eventually(look, lambda one: one.status.phase is DriverImagePhase.RETRYING)
        assert (seen.metadata.finalizers, seen.metadata.annotations) == ([], {})
    finally:
        await cluster.delete(DRIVER_IMAGES, made.metadata)


async def test_a_setting_that_cannot_be_is_said(start):
    process = start("odd", UPGRADER_LEASE_SECONDS="1")
    assert await process.ended() == 1
    assert "UPGRADER_LEASE_SECONDS=1: " in process.log.read_text()
