"""What is read from and written to the machine's cgroups, on folders that look like them."""

import pytest

from upgrader.core.errors import DevClusterError
from upgrader.process import run
from upgrader_dev.devcluster import cgroups
from upgrader_dev.devcluster.cgroups import trees
from upgrader_dev.devcluster.cgroups.choice import RootState
from upgrader_dev.devcluster.cgroups.host import read_host
from upgrader_dev.devcluster.cgroups.version1 import SeparateCgroups
from upgrader_dev.devcluster.cgroups.version2 import UnifiedCgroups

UNSHARE = ("unshare", "-n")


@pytest.fixture
def unified(tmp_path):
    """The kernel's own root of version 2, as systemd leaves it."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids rdma\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    (tmp_path / "cgroup.procs").write_text("1\n2\n")
    return tmp_path


@pytest.fixture
def separate(tmp_path):
    """Version 1 with a unified hierarchy beside it, as systemd has had it."""
    for name in ("cpu,cpuacct", "cpuset", "freezer", "memory", "unified"):
        (tmp_path / name).mkdir()
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-3\n")
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0\n")
    (tmp_path / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    return tmp_path


def test_the_kernels_own_root_is_told_from_a_containers(unified):
    own = read_host(unified)
    (unified / "cgroup.type").write_text("domain\n")
    containers = read_host(unified)

    expected = {"controllers": ("cpuset", "cpu", "io", "memory", "pids", "rdma"), "delegated": ("memory", "pids")}
    assert own == RootState(**expected, topmost=True, occupied=True)
    assert containers == RootState(**expected, topmost=False, occupied=True)


def test_a_hierarchy_beside_version_1_is_not_taken_for_version_2(separate):
    assert read_host(separate) == RootState(separate=True)
    assert isinstance(cgroups.box_cgroups("upg64-gpu-a", separate), SeparateCgroups)


def test_only_what_is_missing_is_switched_on(unified):
    cgroups.delegate_controllers(unified)

    assert (unified / "cgroup.subtree_control").read_text() == "+cpu +cpuset +io"
    assert isinstance(cgroups.box_cgroups("upg64-gpu-a", unified), UnifiedCgroups)


def test_nothing_is_written_where_all_is_there(unified):
    (unified / "cgroup.subtree_control").write_text("cpuset cpu io memory pids\n")
    cgroups.delegate_controllers(unified)

    assert (unified / "cgroup.subtree_control").read_text() == "cpuset cpu io memory pids\n"


def test_nothing_is_written_on_version_1(separate):
    before = {path: path.read_text() for path in separate.rglob("*") if path.is_file()}
    cgroups.delegate_controllers(separate)

    assert {path: path.read_text() for path in separate.rglob("*") if path.is_file()} == before


def test_a_box_on_version_2_has_one_cgroup_and_one_below_it_for_its_own_processes(unified):
    own = UnifiedCgroups(unified, "upg64-gpu-a")
    own.create()

    assert [str(path.relative_to(unified)) for path in sorted(unified.rglob("*")) if path.is_dir()] == [
        "upg64-gpu-a",
        "upg64-gpu-a/init",
    ]
    own.remove()
    assert not (unified / "upg64-gpu-a").exists()


def test_what_a_box_has_left_behind_is_made_anew(unified):
    left = unified / "upg64-gpu-a" / "kubepods" / "pod1"
    left.mkdir(parents=True)
    UnifiedCgroups(unified, "upg64-gpu-a").create()

    assert not left.exists()


def test_a_box_on_version_1_has_one_cgroup_in_each_hierarchy(separate):
    SeparateCgroups(separate, "upg64-gpu-a").create()

    assert sorted(path.parent.name for path in separate.glob("*/upg64-gpu-a") if not path.parent.is_symlink()) == [
        "cpu,cpuacct",
        "cpuset",
        "freezer",
        "memory",
        "unified",
    ]
    assert (separate / "cpuset" / "upg64-gpu-a" / "cpuset.cpus").read_text() == "0-3\n"


@pytest.mark.parametrize(("version", "joins"), [(1, ["memory/x"]), (2, ["x", "x/init"])])
def test_a_program_is_started_when_its_cgroups_are_joined_one_after_the_other(tmp_path, version, joins):
    if version == 1:
        (tmp_path / "memory").mkdir()
    own = SeparateCgroups(tmp_path, "x") if version == 1 else UnifiedCgroups(tmp_path, "x")
    own.create()
    # stands in for unshare: drops its own words and the option, and becomes what follows
    program = tmp_path / "unshare"
    program.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n')
    program.chmod(0o755)

    path = f"{tmp_path}:/usr/bin:/bin"
    said = run(own.enter_command(UNSHARE, ["echo", "started"]), timeout=20, env={"PATH": path}).text

    assert said == "started"
    pids = [(tmp_path / group / "cgroup.procs").read_text() for group in joins]
    assert len(set(pids)) == 1
    assert pids[0].strip().isdecimal()


def test_nothing_is_started_where_a_cgroup_cannot_be_joined(tmp_path):
    ended = run(UnifiedCgroups(tmp_path, "x").enter_command(UNSHARE, ["echo", "started"]), timeout=20, check=False)

    assert (ended.code != 0, ended.text) == (True, "")


def test_a_freeze_that_does_not_come_is_an_error(tmp_path):
    with pytest.raises(DevClusterError, match=r"did not freeze within 0\.1 s"):
        trees.wait_frozen(tmp_path, lambda: False, seconds=0.1)


def test_a_freeze_of_version_2_is_over_when_the_kernel_says_that_all_have_stopped(tmp_path):
    own = UnifiedCgroups(tmp_path, "x")
    own.create()
    (tmp_path / "x" / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    own.freeze()
    frozen = (tmp_path / "x" / "cgroup.freeze").read_text()
    own.thaw()

    assert (frozen, (tmp_path / "x" / "cgroup.freeze").read_text()) == ("1", "0")


def test_what_is_struck_is_killed_by_the_kernel_where_it_can(tmp_path):
    own = UnifiedCgroups(tmp_path, "x")
    own.create()
    own.kill_all()
    (tmp_path / "x" / "cgroup.kill").touch()
    own.kill_all()

    assert (tmp_path / "x" / "cgroup.kill").read_text() == "1"


def test_on_version_1_every_freeze_below_ends_before_a_box_is_killed(separate):
    own = SeparateCgroups(separate, "x")
    own.create()
    below = separate / "freezer" / "x" / "kubepods"
    below.mkdir()
    states = [folder / "freezer.state" for folder in (below.parent, below)]
    for state in states:
        state.write_text("FROZEN\n")
    own.kill_all()

    assert [state.read_text() for state in states] == ["THAWED", "THAWED"]


def test_what_still_runs_in_a_cgroup_is_named(tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "cgroup.procs").write_text("4242\n")

    with pytest.raises(DevClusterError, match="cannot be removed") as raised:
        trees.remove_tree(folder, seconds=0.1)

    assert raised.value.details == f"Still in it:\n{folder}: ['4242']"
