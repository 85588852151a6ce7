"""What a file of the node says about the boot that runs now."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

from upgrader.node.host.boot import is_of_this_boot

BEGAN = 1_700_000_000


class Machine:
    """A boot that began at BEGAN, with one file system."""

    def __init__(self, folder, kind="ext4"):
        self.proc, self.file = folder / "proc", folder / "gfd"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "stat").write_text(f"cpu  1 2 3\nbtime {BEGAN}\nprocesses 9\n")
        device = folder.stat().st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        mounts = ("30 1 0:999 / /proc rw - proc proc rw", f"31 1 {number} / /x rw shared:1 - {kind} x rw")
        (self.proc / "self" / "mountinfo").write_text("\n".join(mounts))

    def left(self, at):
        self.file.write_text("nvidia.com/gpu.count=8")
        os.utime(self.file, (at, at))

    def counts(self):
        return is_of_this_boot(self.file, self.proc)


@pytest.mark.parametrize(("at", "expected"), [(BEGAN - 1, False), (BEGAN, True), (BEGAN + 60, True)])
def test_a_file_on_a_disk_counts_when_it_was_written_on_this_boot(tmp_path, at, expected):
    machine = Machine(tmp_path)
    machine.left(at)
    assert machine.counts() is expected


def test_one_that_a_reboot_forgets_counts_whatever_the_clock_said_then(tmp_path):
    machine = Machine(tmp_path, "tmpfs")
    machine.left(0)
    assert machine.counts()


def test_one_that_is_not_there_does_not(tmp_path):
    assert not Machine(tmp_path).counts()


def test_a_socket_counts_while_somebody_listens():
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        file = Path(folder) / "plugin.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(file))
            assert not is_of_this_boot(file), "bound, and nobody listens yet"
            server.listen()
            assert is_of_this_boot(file)
        assert file.is_socket()
        assert not is_of_this_boot(file), "its process has gone, the file has not"


def test_the_machine_that_runs_this_says_when_it_began(tmp_path):
    file = tmp_path / "now"
    file.touch()
    assert is_of_this_boot(file)
