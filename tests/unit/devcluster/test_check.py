import pytest

from upgrader.core.errors import DevClusterError
from upgrader.devcluster import check


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without any program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_boxes_need_namespaces_of_their_own():
    with pytest.raises(DevClusterError, match="boxes need root") as raised:
        check.require(namespaces=False, boxes=True)

    assert "--boxes 0" in raised.value.resolution


def test_all_that_is_missing_is_named_at_once(bare):
    with pytest.raises(DevClusterError) as raised:
        check.require(namespaces=True, boxes=False)

    assert raised.value.brief == "Debian packages are missing: iproute2 mount openssl util-linux"
    assert "install-packages.sh" in raised.value.resolution


def test_less_is_needed_for_less(bare):
    assert check.missing_packages(namespaces=False, boxes=False) == ["openssl"]


def test_a_program_that_is_there_is_not_missing(bare):
    program = bare / "openssl"
    program.touch(mode=0o755)

    assert check.missing_packages(namespaces=False, boxes=False) == []


def test_the_script_knows_every_package_that_is_checked():
    script = (check.Path(check.__file__).parent / "install-packages.sh").read_text()
    packages = {
        *check.ALWAYS.values(),
        *check.WITH_NAMESPACES.values(),
        *check.WITH_BOXES.values(),
        *check._CNI.values(),
    }

    assert {package for package in packages if f"\n  {package}" not in script} == set()


def test_cgroup_v2_is_refused_in_plain_words(tmp_path):
    (tmp_path / "cgroup.controllers").touch()

    with pytest.raises(DevClusterError, match="boxes are written for cgroup v1, and this machine has cgroup v2"):
        check.require_cgroup_v1(tmp_path)

    (tmp_path / "memory").mkdir()
    check.require_cgroup_v1(tmp_path)


@pytest.mark.parametrize(
    "rules", ["-P FORWARD ACCEPT", "-P FORWARD DROP\n-A FORWARD -i upg+ -o upg+ -j ACCEPT", "-N X\n-P FORWARD ACCEPT"]
)
def test_a_firewall_that_lets_the_boxes_talk(rules):
    check.require_forwarding(rules)


def test_a_firewall_that_does_not():
    rules = "-P FORWARD DROP\n-A FORWARD -j DOCKER-USER"

    with pytest.raises(DevClusterError, match="firewall drops") as raised:
        check.require_forwarding(rules)

    assert "iptables -I FORWARD" in raised.value.resolution
