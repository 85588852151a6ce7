import pytest

from tests.support.apt_repository import Repository, frozen, throw_away_key
from upgrader.images.debian.apt import Apt
from upgrader.images.debian.discovery import read_lists


@pytest.fixture(scope="session")
def key():
    with throw_away_key() as made:
        yield made


@pytest.fixture(scope="session")
def other_key():
    with throw_away_key() as made:
        yield made


@pytest.fixture
def repository(tmp_path, key):
    return Repository(tmp_path / "mirror", key)


@pytest.fixture(scope="session")
def found(tmp_path_factory, key):
    """What the frozen index has, read through apt once."""
    repository = Repository(tmp_path_factory.mktemp("mirror"), key)
    repository.publish_frozen()
    components = ("main", "contrib", "non-free", "non-free-firmware")
    apt = Apt(tmp_path_factory.mktemp("apt"), repository.archives, tuple(frozen()), components)
    with apt.updated_lists():
        return read_lists(
            apt, {"nvidia-kernel-dkms", "nvidia-open-kernel-dkms", "libnvidia-ml1", "firmware-nvidia-gsp"}
        )
