"""Which cgroups boxes get, by what a machine has."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.cgroups.choice import NEEDED, WELCOME, Choice, Seen, choose_support, choose_version

EVERY = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids", "rdma", "misc")
DEBIAN = Seen(controllers=EVERY, given=("memory", "pids"), occupied=True)
CONTAINER = msgspec.structs.replace(DEBIAN, topmost=False)

UNIFIED = "cgroup v2: /sys/fs/cgroup is the unified hierarchy"


@pytest.mark.parametrize(
    ("seen", "choice"),
    [
        (
            DEBIAN,
            Choice(
                version=2,
                reason=f"{UNIFIED}; cpu, cpuset, hugetlb, io switched on for cgroups below it, to stay so",
                enable=("cpu", "cpuset", "hugetlb", "io"),
            ),
        ),
        (msgspec.structs.replace(DEBIAN, given=EVERY), Choice(version=2, reason=UNIFIED)),
        # a container whose maker gave controllers on, and which cannot give more
        (msgspec.structs.replace(CONTAINER, given=NEEDED), Choice(version=2, reason=UNIFIED)),
        # systemd in a container puts itself away from its root
        (
            msgspec.structs.replace(CONTAINER, occupied=False, given=("cpu", "cpuset", "memory", "io")),
            Choice(
                version=2,
                reason=f"{UNIFIED}; pids, hugetlb switched on for cgroups below it, to stay so",
                enable=("pids", "hugetlb"),
            ),
        ),
        (
            msgspec.structs.replace(DEBIAN, controllers=NEEDED),
            Choice(
                version=2,
                reason=f"{UNIFIED}; cpu, cpuset switched on for cgroups below it, to stay so",
                enable=("cpu", "cpuset"),
            ),
        ),
    ],
)
def test_a_unified_hierarchy_gives_boxes_what_a_kubelet_needs(seen, choice):
    assert choose_support(seen) == choice


@pytest.mark.parametrize(
    "seen",
    [
        Seen(separate=True),
        Seen(separate=True, writable=False),
        Seen(separate=True, controllers=("hugetlb",), topmost=False, occupied=True),
    ],
)
def test_version_1_is_taken_where_controllers_are_mounted_one_by_one(seen):
    assert choose_support(seen) == Choice(
        version=1, reason="cgroup v1: /sys/fs/cgroup has one hierarchy per controller"
    )


@pytest.mark.parametrize(
    ("seen", "brief", "way_out"),
    [
        (Seen(), "/sys/fs/cgroup has no cgroups for boxes: neither", "mount -t cgroup2"),
        (
            msgspec.structs.replace(DEBIAN, controllers=("cpu", "cpuset", "io", "pids")),
            "boxes need the cgroup controllers cpu, cpuset, memory, pids, and there is no memory here",
            "cgroup_disable=",
        ),
        (
            msgspec.structs.replace(DEBIAN, writable=False),
            "boxes need cgroups of their own, and /sys/fs/cgroup is mounted read-only",
            "privileged",
        ),
        (
            CONTAINER,
            "cgroups below /sys/fs/cgroup cannot have the controllers cpu, cpuset: processes of this container are in",
            "mkdir init",
        ),
    ],
)
def test_what_is_in_the_way_is_said_with_the_way_out(seen, brief, way_out):
    with pytest.raises(DevClusterError) as raised:
        choose_support(seen)

    assert raised.value.brief.startswith(brief)
    assert way_out in raised.value.resolution


controllers = st.lists(st.sampled_from((*NEEDED, *WELCOME, "rdma")), unique=True).map(tuple)


@st.composite
def machines(draw):
    there = draw(controllers)
    return Seen(
        controllers=there,
        given=tuple(one for one in there if draw(st.booleans())),
        topmost=draw(st.booleans()),
        occupied=draw(st.booleans()),
        writable=draw(st.booleans()),
    )


@given(machines())
def test_after_what_is_switched_on_a_box_has_all_that_is_needed_or_it_was_refused(seen):
    try:
        chosen = choose_support(seen)
    except DevClusterError:
        return
    assert choose_version(seen) == chosen.version == 2
    assert set(NEEDED) <= {*seen.given, *chosen.enable} <= set(seen.controllers)
    # the kernel would refuse it
    assert not chosen.enable or seen.topmost or not seen.occupied


@given(machines())
def test_what_can_be_had_is_never_refused(seen):
    possible = seen.topmost or not seen.occupied or set(NEEDED) <= set(seen.given)

    if seen.writable and set(NEEDED) <= set(seen.controllers) and possible:
        assert choose_support(seen).version == 2
