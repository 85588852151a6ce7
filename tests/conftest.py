"""Fixtures that several folders share."""

import os

import pytest

EXISTING_CLUSTER = "UPGRADER_TEST_KUBECONFIG"
"""A kubeconfig of a cluster of tests that is there already; it is used and never torn down."""


@pytest.fixture(scope="session")
def kubeconfig():
    """A kubeconfig, as admin, of a real API server with our kinds not yet installed."""
    if named := os.environ.get(EXISTING_CLUSTER):
        yield named
        return
    pytest.fail(f"set {EXISTING_CLUSTER}")
