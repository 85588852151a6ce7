import pytest

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster import check


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without any program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_boxes_need_namespaces_of_their_own():
    with pytest.raises(DevClusterError, match="boxes require root") as raised:
        check.require_host(namespaces=False, boxes=True)

    assert "--boxes 0" in raised.value.resolution


def test_virtual_nodes_need_root_and_network_cards(tmp_path):
    with pytest.raises(DevClusterError, match="and virtual nodes too"):
        check.require_host(namespaces=False, boxes=False, vms=True)
    with pytest.raises(DevClusterError, match="tun, which does not exist"):
        check.require_tun(tmp_path / "tun")

    (tmp_path / "tun").touch()
    check.require_tun(tmp_path / "tun")


def test_what_keeps_virtual_nodes_from_running_is_told_and_not_raised(bare):
    assert "and virtual nodes too" in check.lacking_for_virtual_nodes(root=False)
    assert "qemu-system-x86" in check.lacking_for_virtual_nodes(root=True)


def test_virtual_nodes_need_qemu_and_no_containerd(bare):
    missing = check.missing_packages(namespaces=True, boxes=False, vms=True)

    assert {"qemu-system-x86", "qemu-utils", "mmdebstrap", "e2fsprogs"} <= set(missing)
    assert "containerd" not in missing


def test_all_that_is_missing_is_named_at_once(bare):
    with pytest.raises(DevClusterError) as raised:
        check.require_host(namespaces=True, boxes=False)

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
        *check.WITH_VMS.values(),
        *check._CNI.values(),
    }

    assert {package for package in packages if f"\n  {package}" not in script} == set()


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
