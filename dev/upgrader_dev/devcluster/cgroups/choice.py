"""Which cgroups boxes get on a machine, from what is mounted there. Pure."""

from typing import Literal

from msgspec import Struct

from upgrader.core.errors import DevClusterError

NEEDED = ("cpu", "cpuset", "memory", "pids")
"""Controllers that a kubelet keeps pods to their limits by."""
WELCOME = ("hugetlb", "io")
"""Controllers that a kubelet uses where the machine has them."""
_OTHERS = "Virtual nodes and kwok nodes need none of this: `upgrader dev up --boxes 0 --vm-nodes 2`."

Version = Literal[1, 2]


class Seen(Struct, frozen=True, kw_only=True):
    """What is at the root of the machine's cgroups, /sys/fs/cgroup.

    Args:
        separate: whether controllers are mounted there one by one (version 1; also beside a unified hierarchy).
        controllers: of the unified hierarchy (version 2), `cgroup.controllers`; None when none is mounted there.
        given: which of them cgroups below have, `cgroup.subtree_control`.
        topmost: it is the kernel's own root and not that of a cgroup namespace, as containers have it.
        occupied: processes are in it, and in no cgroup below.
        writable: it is not mounted read-only.
    """

    separate: bool = False
    controllers: tuple[str, ...] | None = None
    given: tuple[str, ...] = ()
    topmost: bool = True
    occupied: bool = False
    writable: bool = True


class Choice(Struct, frozen=True, kw_only=True):
    """What boxes get. `enable`: controllers of version 2 that cgroups below do not have yet and are to be given."""

    version: Version
    reason: str
    enable: tuple[str, ...] = ()


def choose_version(seen: Seen) -> Version:
    """Version 1 where the memory controller has a hierarchy of its own, whatever is beside it.

    Raises:
        DevClusterError: there are cgroups of neither version.
    """
    if seen.separate:
        return 1
    if seen.controllers is None:
        raise DevClusterError(
            "/sys/fs/cgroup has no cgroups for boxes: neither a memory controller (v1) nor cgroup.controllers (v2)",
            resolution="`mount -t cgroup2 cgroup2 /sys/fs/cgroup` mounts version 2.",
        )
    return 2


def choose_support(seen: Seen) -> Choice:
    """What boxes get here, and why.

    Raises:
        DevClusterError: they cannot be had here; it says what is in the way and how it goes away.
    """
    if choose_version(seen) == 1:
        return Choice(version=1, reason="cgroup v1: /sys/fs/cgroup has one hierarchy per controller")
    there = seen.controllers or ()
    _refuse_what_cannot_be(seen, there)
    # version 2 gives controllers to cgroups below only where no process sits beside them; its own root is exempt
    free = seen.topmost or not seen.occupied
    wanted = tuple(one for one in (*NEEDED, *WELCOME) if one in (there if free else seen.given))
    enable = tuple(one for one in wanted if one not in seen.given)
    more = f"; {', '.join(enable)} switched on for cgroups below it, to stay so" if enable else ""
    return Choice(version=2, reason=f"cgroup v2: /sys/fs/cgroup is the unified hierarchy{more}", enable=enable)


def _refuse_what_cannot_be(seen: Seen, there: tuple[str, ...]) -> None:
    if missing := [one for one in NEEDED if one not in there]:
        raise DevClusterError(
            f"boxes need the cgroup controllers {', '.join(NEEDED)}, and there is no {', '.join(missing)} here",
            resolution=f"The kernel's command line (cgroup_disable=) or this container's maker hides it. {_OTHERS}",
        )
    if not seen.writable:
        raise DevClusterError(
            "boxes need cgroups of their own, and /sys/fs/cgroup is mounted read-only",
            resolution=f"A container has to be a privileged one for boxes. {_OTHERS}",
        )
    absent = [one for one in NEEDED if one not in seen.given]
    if absent and seen.occupied and not seen.topmost:
        raise DevClusterError(
            f"cgroups below /sys/fs/cgroup cannot have the controllers {', '.join(absent)}: processes of this "
            "container are in it, and cgroup v2 allows no processes beside controllers",
            resolution="Put them into one below: `cd /sys/fs/cgroup; mkdir init; for pid in $(cat cgroup.procs); do "
            f"echo $pid > init/cgroup.procs; done`. {_OTHERS}",
        )
