import os

import pytest

from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError
from upgrader.process import atomic_file


@pytest.fixture
def host(tmp_path):
    root = tmp_path / "root"
    (root / "var/lib/kubelet/pki").mkdir(parents=True)
    (root / "run").mkdir()
    (root / "var/run").symlink_to("/run")
    (root / "var/lib/kubelet/pki/2026.pem").write_text("key")
    (root / "var/lib/kubelet/pki/current.pem").symlink_to("/var/lib/kubelet/pki/2026.pem")
    (root / "var/lib/kubelet/pki/relative.pem").symlink_to("../pki/2026.pem")
    (root / "loop").symlink_to("/loop")
    (root / "escape").symlink_to("../../../etc")
    return Host(root=root)


@pytest.mark.parametrize(
    ("path", "on_node"),
    [
        ("/", "/"),
        ("/var/lib/kubelet/pki/2026.pem", "/var/lib/kubelet/pki/2026.pem"),
        ("/var/lib/kubelet/pki/current.pem", "/var/lib/kubelet/pki/2026.pem"),
        ("/var/lib/kubelet/pki/relative.pem", "/var/lib/kubelet/pki/2026.pem"),
        ("/var/run/gpu-upgrader", "/run/gpu-upgrader"),
        ("//var/./lib/../lib", "/var/lib"),
        ("/../../var", "/var"),
        ("/escape/passwd", "/etc/passwd"),
        ("/not/there/yet", "/not/there/yet"),
    ],
)
def test_links_are_followed_as_the_node_would(host, path, on_node):
    assert host.on_node(host.path(path)) == on_node
    assert host.path(path).is_relative_to(host.root)


def test_a_loop_of_links_is_an_error_that_says_so(host):
    with pytest.raises(OrderFailedError, match="loop of symbolic links") as caught:
        host.path("/loop/x")
    assert caught.value.reason is Reason.MISSING


def test_the_kernel_is_read_without_its_line_end(host):
    (host.root / "proc/sys/kernel").mkdir(parents=True)
    (host.root / "proc/sys/kernel/osrelease").write_text("6.1.0-47-amd64\n")
    assert host.kernel() == "6.1.0-47-amd64"


def test_a_copy_is_a_new_file_and_executable(tmp_path):
    source, target = tmp_path / "a", tmp_path / "folder" / "b"
    source.write_bytes(b"new")
    target.parent.mkdir()
    target.write_bytes(b"old")
    with target.open("rb") as running:
        inode = os.fstat(running.fileno()).st_ino
        atomic_file.copy_executable(source, target)
        assert running.read() == b"old"
    assert target.stat().st_ino != inode
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o755)
    assert [path.name for path in target.parent.iterdir()] == ["b"]


def test_what_a_killed_copy_left_is_written_over(tmp_path):
    (tmp_path / ".b.upgrader-new").write_bytes(b"half a fi")
    atomic_file.write_file(tmp_path / "b", b"whole")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"b": b"whole"}
