"""A pool with two jobs, and a forecast file for its next driver."""

import asyncio
import time

import pytest
import structlog

from upgrader_dev.simulated.cluster.rig import Rig, start_training

NEXT = (
    "--set", "driver.version=2.0",
    "--set", "devicePlugin.image=registry/plugin:2",
    "--set", "kubelet.version=1.35.4",
    "--set", "kubelet.artifact=registry/kubelet:1.35.4",
)  # fmt: skip
QUICK = ("--no-canary", "--wait-for-completion", "0s")
"""Nobody watches canaries or waits for ends where a test is about something else."""


@pytest.fixture
def rig():
    """Four nodes on driver 1.0: a gang on two of them, a single job on the third; images for 2.0 are there."""
    made = Rig()

    async def build():
        await start_training(made, nodes=4)
        made.apply_stack(made.make_spec("1.0"))
        made.fleet.add_job("solo", members=1, gpus=8)
        await made.settle()
        await made.run_until(lambda: made.fleet.trainers["solo"].step > 5)
        made.make_spec("2.0", plugin="2", kubelet="1.35.4")  # pushes the images of the next spec

    asyncio.run(build())
    return made


@pytest.fixture
def forecast_file(rig, tmp_path):
    """A saved forecast of everything that NEXT changes."""
    from tests.support.terminal import upgrader  # noqa: PLC0415

    path = tmp_path / "forecast.json"
    ended = upgrader(rig, "plan", *NEXT, *QUICK, "--max-unavailable", "50%", "-o", str(path))
    assert ended.exit_code == 0, ended.output
    return path


@pytest.fixture(autouse=True)
def _quiet():
    """The controller's own log is not the command line's output."""
    with structlog.testing.capture_logs():
        yield


def set_zone(patch, name):
    """This machine's time zone, also for the C library."""
    patch.setenv("TZ", name)
    time.tzset()


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    """Screens show the clock of the machine; golden files have that of one in UTC."""
    with monkeypatch.context() as patch:
        set_zone(patch, "UTC")
        yield
    time.tzset()


@pytest.fixture
def berlin(_utc, monkeypatch):
    """A machine in Berlin."""
    with monkeypatch.context() as patch:
        set_zone(patch, "Europe/Berlin")
        yield
    time.tzset()
