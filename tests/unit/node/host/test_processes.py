import hashlib
import shutil
import signal
import time

import pytest

from tests.support.programs import shell_as, soon, started
from upgrader.node.host.host import Host
from upgrader.node.host.processes import KubeletProcesses, RunningKubelet
from upgrader.process import daemon

SCRIPT = "while :; do sleep 0.1; done"


@pytest.fixture
def node(tmp_path):
    """A root with a kubelet at /opt/kubelet that is a copy of the shell; exe links of this machine start at /."""
    binary = tmp_path / "opt" / "kubelet"
    return KubeletProcesses(Host(root=tmp_path / "elsewhere"), str(binary)), binary, tmp_path / "log"


def test_a_kubelet_is_found_by_its_file_and_its_flags(node):
    kubelets, binary, log = node
    words = [*shell_as(binary), SCRIPT, "kubelet", "--kubeconfig", "/etc/a", "--config=/etc/b"]
    before = time.time()
    with started(words, log=log) as program:
        (found,) = soon(kubelets.running)
    assert found == RunningKubelet(
        pid=program.pid,
        started=found.started,
        sha256=hashlib.sha256(binary.read_bytes()).hexdigest(),
        arguments=("-c", SCRIPT, "kubelet", "--kubeconfig", "/etc/a", "--config=/etc/b"),
    )
    assert abs(found.started - before) < 3
    # What it was about to start when it was killed looks like it until it is dead too.
    soon(lambda: kubelets.running() == ())


def test_it_is_still_found_when_its_file_was_replaced(node):
    kubelets, binary, log = node
    with started([*shell_as(binary), SCRIPT, "kubelet", "--kubeconfig=/etc/a"], log=log):
        soon(kubelets.running)
        old = hashlib.sha256(binary.read_bytes()).hexdigest()
        other = binary.with_name("new")
        shutil.copy(binary, other)
        with other.open("ab") as file:
            file.write(b"another build")
        other.replace(binary)
        (found,) = kubelets.running()
        assert found.sha256 == old
        with started([str(binary), "-c", SCRIPT, "kubelet", "--kubeconfig=/etc/a"], log=log):
            both = soon(lambda: len(kubelets.running()) == 2 and kubelets.running())
    assert [one.sha256 == old for one in both] == [True, False]


@pytest.mark.parametrize(
    ("name", "flags"),
    [("kubelet", []), ("kubelet", ["--config", "/etc/b"]), ("other/kubelet", ["--kubeconfig", "/etc/a"])],
    ids=["no flags", "no kubeconfig", "another file of that name"],
)
def test_what_is_no_kubelet_of_this_node(node, name, flags):
    kubelets, binary, log = node
    words = shell_as(binary.parent / name)
    shell_as(binary)
    with started([*words, SCRIPT, "kubelet", *flags], log=log) as program:
        soon(lambda: (log.exists(), program.running())[1])
        assert kubelets.running() == ()


def test_what_it_starts_is_not_taken_for_a_second_one(node):
    kubelets, binary, log = node
    child = f"{binary} -c '{SCRIPT}' kubelet --kubeconfig=/etc/a & wait"
    with started([*shell_as(binary), child, "kubelet", "--kubeconfig=/etc/a"], log=log) as program:
        soon(lambda: daemon.child_pids(program.pid))
        soon(lambda: "kubelet" in "".join(daemon.command_line(daemon.child_pids(program.pid)[0])))
        assert [one.pid for one in kubelets.running()] == [program.pid]


def test_sigterm_ends_it_and_a_second_one_is_fine(node):
    kubelets, binary, log = node
    with started([*shell_as(binary), SCRIPT, "kubelet", "--kubeconfig", "/etc/a"], log=log) as program:
        (found,) = soon(kubelets.running)
        kubelets.signal(found, signal.SIGTERM)
        assert program.wait() == 143
        kubelets.signal(found, signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (("--config", "/a"), "/a"),
        (("--config=/a",), "/a"),
        (("--config", "/a", "--config=/b"), "/b"),
        (("--config=",), ""),
        (("--configure=/a",), "none"),
        (("--config",), "none"),
    ],
)
def test_flags_are_read_as_the_kubelet_reads_them(arguments, value):
    assert RunningKubelet(pid=1, started=0, sha256="", arguments=arguments).option("config", "none") == value
