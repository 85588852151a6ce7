"""The node image is pinned; a controller whose image is pinned already starts without its registry."""

import pytest

from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.wiring import compose
from upgrader.wiring.settings import Settings
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.apiserver.node_cache import FakeNodes
from upgrader_dev.simulated.cluster.ports import FakeCrashPoints, FakeLeadership

PINNED = "127.0.0.1:1/upgrader@sha256:" + "0" * 64


async def made(image):
    cluster = FakeCluster()
    settings = Settings(node_image=image, insecure_registries=("127.0.0.1:1",))
    async with compose.controller_context(
        settings, cluster, FakeNodes(cluster), cluster, FakeLeadership(), FakeCrashPoints()
    ) as context:
        return context


async def test_a_pinned_image_asks_no_registry():
    assert (await made(PINNED)).stack.node_image == PINNED


async def test_a_tag_needs_the_registrys_word():
    with pytest.raises(RegistryError):
        await made("127.0.0.1:1/upgrader:1")


async def test_without_an_image_there_is_no_controller():
    with pytest.raises(ConfigurationError, match="UPGRADER_NODE_IMAGE"):
        await made("")


def test_a_command_has_no_cache_of_nodes():
    assert compose.NoSnapshot().snapshot() is None
