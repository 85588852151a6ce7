"""The cgroups of a box (version 1: one per controller), which its cgroup namespace takes as their roots."""

from pathlib import Path

import tenacity

from upgrader.core.errors import DevClusterError

ROOT = Path("/sys/fs/cgroup")
_REMOVE_SECONDS = 15.0


def version_1() -> bool:
    """Whether controllers are mounted one by one, as boxes need it."""
    return (ROOT / "memory").is_dir()


def hierarchies() -> list[Path]:
    """The mounted hierarchies; a link to another (cpu → cpu,cpuacct) is none of its own. Version 2 has one."""
    if not version_1():
        return [ROOT]
    return sorted(entry for entry in ROOT.iterdir() if entry.is_dir() and not entry.is_symlink())


def make(name: str) -> list[Path]:
    """A cgroup `name` in each hierarchy; their directories."""
    folders = [hierarchy / name for hierarchy in hierarchies()]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        if folder.parent.name == "cpuset":  # starts empty, and takes no process until it is filled
            for field in ("cpuset.cpus", "cpuset.mems"):
                (folder / field).write_text((folder.parent / field).read_text())
    return folders


def thaw(name: str) -> None:
    """End freezes below: a frozen process cannot even be killed."""
    frozen = ROOT / "freezer" / name
    for state in frozen.rglob("freezer.state") if frozen.exists() else ():
        state.write_text("THAWED")


def remove(name: str) -> None:
    """Remove the cgroups, with those below; their processes have been killed and may take a moment to be gone.

    Raises:
        DevClusterError: something still runs in one of them.
    """
    for hierarchy in hierarchies():
        folder = hierarchy / name
        trying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(OSError),
            wait=tenacity.wait_fixed(0.05),
            stop=tenacity.stop_after_delay(_REMOVE_SECONDS),
        )
        try:
            trying(_remove_tree, folder)
        except tenacity.RetryError as error:
            left = "\n".join(
                sorted(f"{path.parent}: {path.read_text().split()}" for path in folder.rglob("cgroup.procs"))
            )
            raise DevClusterError(f"cgroup {folder} cannot be removed", details=f"Still in it:\n{left}") from error


def _remove_tree(folder: Path) -> None:
    if not folder.exists():
        return
    for below in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        below.rmdir()
    folder.rmdir()
