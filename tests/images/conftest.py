"""A real cosign, a real registry and what the archives have, once for all tests of this folder."""

import pytest

from tests.support.real_registry import real_registry
from tests.support.trusting import key_pair
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.images.trust import Cosign, public_key
from upgrader_dev import devcluster


@pytest.fixture(scope="session")
def catalog():
    """What the archives have, asked once for all tests."""
    return Site(WorkspaceSettings(), print).update_catalog()[0]


@pytest.fixture(scope="session")
def cosign_program():
    return devcluster.cosign_program(print)


@pytest.fixture(scope="session")
def cosign(cosign_program):
    return Cosign(cosign_program)


@pytest.fixture(scope="session")
def registry_on_loopback(tmp_path_factory):
    with real_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="session")
def keys(tmp_path_factory, cosign_program):
    return key_pair(tmp_path_factory.mktemp("keys"), cosign_program)


@pytest.fixture(scope="session")
def signing(keys):
    return keys[0]


@pytest.fixture(scope="session")
def verifying(keys):
    return public_key(keys[1])
