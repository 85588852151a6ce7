"""The pages that a kubelet and Prometheus ask for."""

import aiohttp
import pytest

from upgrader.controller import probes
from upgrader.controller.run import lease_timing
from upgrader.core.errors import ConfigurationError
from upgrader.kube.transport import REQUEST_SECONDS
from upgrader.wiring.settings import SHORTEST_LEASE


async def page(port, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def test_pages():
    wrong = {"alive": "", "ready": "the nodes are not in step"}
    pages = probes.create_application(alive=lambda: wrong["alive"], ready=lambda: wrong["ready"])
    async with probes.serve_endpoints(pages, "127.0.0.1", 0) as port:
        assert await page(port, "/healthz") == (200, "ok\n")
        assert await page(port, "/readyz") == (503, "the nodes are not in step\n")
        wrong["alive"] = "a step hangs"
        assert await page(port, "/healthz") == (503, "a step hangs\n")
        status, text = await page(port, "/metrics")
        assert status == 200
        assert "upgrader_leader" in text


async def test_an_address_that_is_taken():
    pages = [probes.create_application(alive=str, ready=str) for _ in range(2)]
    async with probes.serve_endpoints(pages[0], "127.0.0.1", 0) as port:
        with pytest.raises(ConfigurationError, match="UPGRADER_LISTEN"):
            async with probes.serve_endpoints(pages[1], "127.0.0.1", port):
                pass


@pytest.mark.parametrize("seconds", [SHORTEST_LEASE, 15, 30, 3600])
def test_any_lease_that_can_be_set_ends_after_the_last_write(seconds):
    made = lease_timing(seconds)
    assert made.act + REQUEST_SECONDS <= made.duration == seconds
    assert made.renew < made.act
