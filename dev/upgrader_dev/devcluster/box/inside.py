"""Process 1 of a box: `python -m upgrader_dev.devcluster.box.inside --mark=… FOLDER`. It mounts file systems,
configures the network, and supervises programs.

`unshare` makes every mount private and every namespace new, so nothing here affects the machine. All imports are at the
top, since a mount may hide the directory of Python modules.
"""

import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import tenacity

from upgrader.core.errors import DevClusterError, UpgraderError
from upgrader.process import run
from upgrader.process.places import last_lines
from upgrader.process.supervise import SupervisedProgram, Supervisor
from upgrader_dev.devcluster import cgroups
from upgrader_dev.devcluster.base import plan as plans
from upgrader_dev.devcluster.base.plan import BootStage, NodeMounts, Plan, Ready
from upgrader_dev.devcluster.box.node_files import HOME

_READY_SECONDS = 180.0
_MOST_ENDS = 10
"""After so many ends before its stage is ready a program is not restarted: its log contains the cause."""
_CABLE_SECONDS = 30.0
_COMMAND_SECONDS = 60.0

SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""The values that a kubelet requires. No namespace isolates them, so the kubelet sees mounted files with these values
and the machine is not changed. (With a read-only /proc/sys a kubelet ends with "Failed to start ContainerManager".)
"""


def main(folder: Path) -> None:
    """Start the box according to its plan, and run until SIGTERM."""
    plan = plans.read_plan(folder)
    if plan.network:
        _configure_network(plan)
    if plan.mounts is not None:
        _mount_disks(plan.mounts)
        _mask_sysctls(plan.mounts.kernel)
        _mount_own_cgroups()
        run(["mount", "--make-rshared", "/"], timeout=_COMMAND_SECONDS)  # the kubelet propagates mounts to pods
    Path(plan.holds).mkdir(parents=True, exist_ok=True)
    supervisor = Supervisor(holds=Path(plan.holds), journal=Path(plan.journal))
    for stage in plan.stages:
        _bring_up(supervisor, stage)
    supervisor.run()


def _bring_up(supervisor: Supervisor, stage: BootStage) -> None:
    for program in stage.programs:
        supervisor.add(program)
    if stage.ready is not None:
        _wait_for_stage(supervisor, stage, stage.ready)
    for command in stage.commands:
        run(command, timeout=_COMMAND_SECONDS)


def _wait_for_stage(supervisor: Supervisor, stage: BootStage, ready: Ready) -> None:
    check = _make_check(ready)

    def has_finished() -> bool:
        return bool(_failing_programs(supervisor, stage)) or check()

    reached = supervisor.run_until(has_finished, _READY_SECONDS)
    if failing := _failing_programs(supervisor, stage):
        ended = f"{', '.join(program.name for program in failing)} ended {_MOST_ENDS} times"
        raise DevClusterError(ended, details="\n".join(last_lines(Path(program.log)) for program in failing))
    if not reached:
        raise DevClusterError(
            f"{ready.address} is not ready after {_READY_SECONDS:g} s",
            details="\n".join(last_lines(Path(program.log)) for program in stage.programs),
        )


def _failing_programs(supervisor: Supervisor, stage: BootStage) -> list[SupervisedProgram]:
    return [program for program in stage.programs if supervisor.ends(program.name) >= _MOST_ENDS]


def _make_check(ready: Ready) -> Callable[[], bool]:
    if ready.kind == "socket":
        return lambda: _accepts_connections(ready.address)
    context = ssl.create_default_context(cafile=ready.ca)
    context.load_cert_chain(ready.certificate, ready.key)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    return lambda: _returns_ok(opener, ready.address)


def _accepts_connections(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(address)
        except OSError:
            return False
    return True


def _returns_ok(opener: urllib.request.OpenerDirector, address: str) -> bool:
    # the body must be exactly "ok": a 200 or an open port comes earlier, when the bootstrap RBAC may be missing
    try:
        with opener.open(address, timeout=5) as response:
            return bool(response.read() == b"ok")
    except (urllib.error.URLError, OSError):
        return False


def _configure_network(plan: Plan) -> None:
    socket.sethostname(plan.hostname)
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(OSError),
        wait=tenacity.wait_fixed(0.01),
        stop=tenacity.stop_after_delay(_CABLE_SECONDS),
        reraise=True,
    )
    retrying(socket.if_nametoindex, "eth0")  # the host plugs in the cable once this namespace exists
    run(["ip", "-batch", "-"], stdin=plan.network.encode(), timeout=_COMMAND_SECONDS)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _run_mount(*words: str | Path) -> None:
    run(["mount", *words], timeout=_COMMAND_SECONDS)


def _mount_disks(mounts: NodeMounts) -> None:
    # /var/lib and /var/log are the disk, which survives a power cycle; /run does not
    mount_point = Path(mounts.var_lib) / "shared"
    mount_point.mkdir(exist_ok=True)
    _run_mount("--bind", mounts.shared, mount_point)
    _run_mount("--rbind", mounts.var_lib, "/var/lib")
    _run_mount("--bind", mounts.var_log, "/var/log")
    _run_mount("-t", "tmpfs", "-o", "mode=755", "run", "/run")


def _mask_sysctls(kernel: str) -> None:
    shown = {**SYSCTLS, **({"kernel/osrelease": kernel} if kernel else {})}
    for name, value in shown.items():
        file = Path("/run") / f"sysctl-{name.replace('/', '-')}"
        file.write_text(value + "\n")
        _run_mount("--bind", file, f"/proc/sys/{name}")
    _run_mount("--bind", f"{HOME}/boot-id", "/proc/sys/kernel/random/boot_id")  # written at power-on


def _mount_own_cgroups() -> None:
    # a new sysfs shows the devices of this network namespace, new cgroup mounts the roots of this cgroup namespace. The
    # old mounts are removed, not only covered: runc and the kubelet find cgroups in mountinfo
    root = cgroups.ROOT
    version = cgroups.mounted_version()
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink())
    run(["umount", "-l", "/sys"], timeout=_COMMAND_SECONDS)
    _run_mount("-t", "sysfs", "sysfs", "/sys")
    if version == 2:
        _run_mount("-t", "cgroup2", "cgroup2", root)
        cgroups.delegate_controllers()
        return
    _run_mount("-t", "tmpfs", "-o", "mode=755", "cgroup", root)
    for name in names:
        (root / name).mkdir()
        match name:
            case "systemd":
                _run_mount("-t", "cgroup", "-o", "none,name=systemd", "cgroup", root / name)
            case "unified":
                _run_mount("-t", "cgroup2", "cgroup2", root / name)
            case _:
                _run_mount("-t", "cgroup", "-o", name, "cgroup", root / name)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[-1]))
    except UpgraderError as error:
        sys.exit(f"{error}")
