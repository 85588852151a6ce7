"""The choice of the cgroup version for boxes, from the cgroups that are mounted. Pure."""

from typing import Literal

from msgspec import Struct

from upgrader.core.errors import DevClusterError

REQUIRED = ("cpu", "cpuset", "memory", "pids")
"""Controllers that a kubelet requires to enforce pod limits."""
OPTIONAL = ("hugetlb", "io")
"""Controllers that a kubelet uses if the machine has them."""
_ALTERNATIVES = "Virtual nodes and kwok nodes do not require this: `upgrader dev up --boxes 0 --vm-nodes 2`."

Version = Literal[1, 2]


class RootState(Struct, frozen=True, kw_only=True):
    """The root of the machine's cgroups, /sys/fs/cgroup.

    Args:
        separate: whether controllers are mounted one by one (version 1; also with a unified hierarchy next to them).
        controllers: `cgroup.controllers` of the unified hierarchy (version 2); None if it is not mounted.
        given: `cgroup.subtree_control`, the controllers that child cgroups have.
        topmost: whether it is the kernel's root and not that of a cgroup namespace, as in containers.
        occupied: whether processes are in this cgroup itself, and in no child.
        writable: whether it is not mounted read-only.
    """

    separate: bool = False
    controllers: tuple[str, ...] | None = None
    delegated: tuple[str, ...] = ()
    topmost: bool = True
    occupied: bool = False
    writable: bool = True


class Choice(Struct, frozen=True, kw_only=True):
    """The cgroups for boxes. `enable`: controllers of version 2 that must still be enabled for child cgroups."""

    version: Version
    reason: str
    enable: tuple[str, ...] = ()


def choose_version(root_state: RootState) -> Version:
    """Version 1 if the memory controller has a separate hierarchy, regardless of other mounts.

    Raises:
        DevClusterError: no cgroups of either version are mounted.
    """
    if root_state.separate:
        return 1
    if root_state.controllers is None:
        raise DevClusterError(
            "/sys/fs/cgroup has no cgroups for boxes: neither a memory controller (v1) nor cgroup.controllers (v2)",
            resolution="`mount -t cgroup2 cgroup2 /sys/fs/cgroup` mounts version 2.",
        )
    return 2


def choose_support(root_state: RootState) -> Choice:
    """The cgroups for boxes on this machine, and the reason.

    Raises:
        DevClusterError: boxes cannot have cgroups here; with the cause and the resolution.
    """
    if choose_version(root_state) == 1:
        return Choice(version=1, reason="cgroup v1: /sys/fs/cgroup has one hierarchy per controller")
    available = root_state.controllers or ()
    _require_controllers(root_state, available)
    # version 2 delegates controllers only from cgroups without processes; its own root is exempt
    free = root_state.topmost or not root_state.occupied
    controllers = tuple(
        controller
        for controller in (*REQUIRED, *OPTIONAL)
        if controller in (available if free else root_state.delegated)
    )
    enable = tuple(controller for controller in controllers if controller not in root_state.delegated)
    enabled = f"; {', '.join(enable)} enabled permanently for child cgroups" if enable else ""
    return Choice(version=2, reason=f"cgroup v2: /sys/fs/cgroup is the unified hierarchy{enabled}", enable=enable)


def _require_controllers(root_state: RootState, available: tuple[str, ...]) -> None:
    if missing := [controller for controller in REQUIRED if controller not in available]:
        raise DevClusterError(
            f"boxes require the cgroup controllers {', '.join(REQUIRED)}, and {', '.join(missing)} is missing",
            resolution=f"The kernel's command line (cgroup_disable=) or the container hides them. {_ALTERNATIVES}",
        )
    if not root_state.writable:
        raise DevClusterError(
            "boxes require writable cgroups, and /sys/fs/cgroup is mounted read-only",
            resolution=f"Boxes require a privileged container. {_ALTERNATIVES}",
        )
    absent = [controller for controller in REQUIRED if controller not in root_state.delegated]
    if absent and root_state.occupied and not root_state.topmost:
        raise DevClusterError(
            f"cgroups below /sys/fs/cgroup cannot have the controllers {', '.join(absent)}: processes of this "
            "container are in it, and cgroup v2 does not allow processes in a cgroup with delegated controllers",
            resolution="Move them to a child: `cd /sys/fs/cgroup; mkdir init; for pid in $(cat cgroup.procs); do "
            f"echo $pid > init/cgroup.procs; done`. {_ALTERNATIVES}",
        )
