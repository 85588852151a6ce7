"""Fixtures that several folders share: clusters that are started when the first test asks and leave nothing behind."""

import os

import pytest
import structlog
from hypothesis import settings

from tests.support.examples import GATE_SHARE, PROFILE, Profile

# How long an example takes depends on the machine's other work more than on the code: no deadline for one.
# The gate tries the same examples each time: what a change breaks it finds, and what only luck finds is for the night.
settings.register_profile(Profile.GATE, deadline=None, max_examples=100 // GATE_SHARE, derandomize=True)
settings.register_profile(Profile.FULL, deadline=None)
settings.register_profile(Profile.NIGHTLY, deadline=None, max_examples=1000)
settings.load_profile(PROFILE)

# Tracebacks as the controller writes them: structlog's default draws every local variable, in half a minute each.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

EXISTING_CLUSTER = "UPGRADER_TEST_KUBECONFIG"
"""Kubeconfig of a cluster for tests that is there already: used by tests of the API only, never torn down."""


STARTED = pytest.StashKey[list]()
"""The clusters of this session, for a test that fails on one."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """What the clusters look like goes with a failure: where a test fails on another machine, nothing else is kept."""
    report = yield
    if report.failed:
        from tests.support import diagnosis  # noqa: PLC0415 - units need none of it

        for cluster in item.session.stash.get(STARTED, []):
            report.sections.append((f"cluster {cluster.name}", diagnosis.report(cluster)))
    return report


@pytest.fixture(scope="session")
def start_cluster(request):
    """Start an embedded cluster by `start_cluster("purpose", boxes=…, kwok=…)`; it ends with the session."""
    from upgrader_dev.devcluster import ClusterSpec, delete_cluster, start_cluster  # noqa: PLC0415 - units need none of it

    started = []
    running = request.session.stash.setdefault(STARTED, [])

    def start(purpose, **spec):
        name = f"t{os.getpid()}-{purpose}"
        started.append(name)
        running.append(start_cluster(ClusterSpec(name=name, **spec), print))
        return running[-1]

    yield start
    running.clear()
    for name in reversed(started):
        delete_cluster(name)


@pytest.fixture(scope="session")
def control_plane(start_cluster):
    """A cluster without nodes, shared by the tests that need an API server only."""
    return start_cluster("api", boxes=0, loopback=True)


@pytest.fixture(scope="session")
def dev_cluster(start_cluster):
    """One embedded cluster for all tests that leave it as they found it: two boxes, three kwok nodes."""
    return start_cluster("nodes", boxes=2, kwok=3)


@pytest.fixture(scope="session")
def kubeconfig(request):
    """Admin's kubeconfig of a real API server."""
    return os.environ.get(EXISTING_CLUSTER) or str(request.getfixturevalue("control_plane").kubeconfig)
