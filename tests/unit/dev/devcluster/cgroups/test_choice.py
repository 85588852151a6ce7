"""Which cgroups boxes get, by what a machine has."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.cgroups.choice import OPTIONAL, REQUIRED, Choice, RootState, choose_support, choose_version

EVERY = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids", "rdma", "misc")
DEBIAN = RootState(controllers=EVERY, delegated=("memory", "pids"), occupied=True)
CONTAINER = msgspec.structs.replace(DEBIAN, topmost=False)

UNIFIED = "cgroup v2: /sys/fs/cgroup is the unified hierarchy"


@pytest.mark.parametrize(
    ("seen", "choice"),
    [
        (
            DEBIAN,
            Choice(
                version=2,
                reason=f"{UNIFIED}; cpu, cpuset, hugetlb, io enabled permanently for child cgroups",
                enable=("cpu", "cpuset", "hugetlb", "io"),
            ),
        ),
        (msgspec.structs.replace(DEBIAN, delegated=EVERY), Choice(version=2, reason=UNIFIED)),
        # a container whose maker gave controllers on, and which cannot give more
        (msgspec.structs.replace(CONTAINER, delegated=REQUIRED), Choice(version=2, reason=UNIFIED)),
        # systemd in a container puts itself away from its root
        (
            msgspec.structs.replace(CONTAINER, occupied=False, delegated=("cpu", "cpuset", "memory", "io")),
            Choice(
                version=2,
                reason=f"{UNIFIED}; pids, hugetlb enabled permanently for child cgroups",
                enable=("pids", "hugetlb"),
            ),
        ),
        (
            msgspec.structs.replace(DEBIAN, controllers=REQUIRED),
            Choice(
                version=2,
                reason=f"{UNIFIED}; cpu, cpuset enabled permanently for child cgroups",
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
        RootState(separate=True),
        RootState(separate=True, writable=False),
        RootState(separate=True, controllers=("hugetlb",), topmost=False, occupied=True),
    ],
)
def test_version_1_is_taken_where_controllers_are_mounted_one_by_one(seen):
    assert choose_support(seen) == Choice(
        version=1, reason="cgroup v1: /sys/fs/cgroup has one hierarchy per controller"
    )


@pytest.mark.parametrize(
    ("seen", "brief", "way_out"),
    [
        (RootState(), "/sys/fs/cgroup has no cgroups for boxes: neither", "mount -t cgroup2"),
        (
            msgspec.structs.replace(DEBIAN, controllers=("cpu", "cpuset", "io", "pids")),
            "boxes require the cgroup controllers cpu, cpuset, memory, pids, and memory is missing",
            "cgroup_disable=",
        ),
        (
            msgspec.structs.replace(DEBIAN, writable=False),
            "boxes require writable cgroups, and /sys/fs/cgroup is mounted read-only",
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


controllers = st.lists(st.sampled_from((*REQUIRED, *OPTIONAL, "rdma")), unique=True).map(tuple)


@st.composite
def machines(draw):
    there = draw(controllers)
    return RootState(
        controllers=there,
        delegated=tuple(one for one in there if draw(st.booleans())),
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
    assert set(REQUIRED) <= {*seen.delegated, *chosen.enable} <= set(seen.controllers)
    # the kernel would refuse it
    assert not chosen.enable or seen.topmost or not seen.occupied


@given(machines())
def test_what_can_be_had_is_never_refused(seen):
    possible = seen.topmost or not seen.occupied or set(REQUIRED) <= set(seen.delegated)

    if seen.writable and set(REQUIRED) <= set(seen.controllers) and possible:
        assert choose_support(seen).version == 2
