"""A node in a folder: real files, a kubelet and its supervisor played on a virtual clock.

A kubelet's binary is a small JSON file that says how a kubelet started from it behaves, so that what runs follows from
what is installed, as on a node.
"""

import hashlib
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.support.played_systemd import GROUP, PlayedServices, PlayedUnit, UnitFile
from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.node.host.host import Host
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.host.programs import ProgramResult
from upgrader.node.host.systemd import ENTER
from upgrader.node.kubelet.readiness import NodeReadiness

BINARY = "/opt/kube/kubelet"
CONFIG_DIR = "/etc/kubelet.d"
CPU_STATE = "/var/lib/kubelet/cpu_manager_state"
SUPERVISOR_SECONDS = 0.5
START_SECONDS = 1.0
KERNEL = "6.1.0-47-amd64"


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How a kubelet started from a binary behaves."""

    version: str
    starts: bool = True
    healthy: bool = True
    ready: bool = True
    deaf: bool = False  # ignores SIGTERM
    policies: tuple[str, ...] = ("none", "static")  # of the CPU manager, with which it starts
    arguments: tuple[str, ...] = ("--config-dir", CONFIG_DIR)
    saves: bool = False  # writes its CPU state again when it is told to end


class VirtualClock:
    """Seconds pass only by waiting. `later` is what happens at a time."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.later: dict[float, Callable[[], None]] = {}

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        for time in sorted(time for time in self.later if time <= self.now):
            self.later.pop(time)()


class PlayedKubelet:
    """The kubelet port over what is installed in the folder. `restarts` lists the versions that were started."""

    def __init__(self, host: Host, clock: VirtualClock, binary: str = BINARY) -> None:
        self._host = host
        self._clock = clock
        self._installed = host.path(binary)
        self._pid = 100
        self._process: tuple[int, float, bytes] | None = None
        self._ended_at = clock.now - SUPERVISOR_SECONDS
        self.api_away = False
        self.supervised = True
        self.restarts: list[str] = []
        self.unit: PlayedUnit | None = None
        """The unit of systemd that supervises it."""
        self._policy = ""
        self.running()

    def running(self) -> tuple[RunningKubelet, ...]:
        self._supervise()
        if self._process is None:
            return ()
        pid, started, contents = self._process
        digest = hashlib.sha256(contents).hexdigest()
        arguments = ("--kubeconfig", "/etc/kubeconfig", *self._behaviour().arguments)
        return (RunningKubelet(pid=pid, started=started, sha256=digest, arguments=arguments),)

    def signal(self, kubelet: RunningKubelet, number: signal.Signals) -> None:
        if self._process is None or self._process[0] != kubelet.pid:
            return
        if number == signal.SIGTERM and self._behaviour().deaf:
            return
        if self._behaviour().saves:
            self._save(self._policy)
        self._process = None
        self._note_exit(failed=number == signal.SIGKILL)

    def become_unit(self, file: UnitFile, group: str) -> None:
        """Let systemd supervise it; `group` is the control group of its process."""
        self._group = group
        self.unit = PlayedUnit(file, lambda: self._clock.now, self._stop)
        self._write_group()

    def _stop(self) -> None:
        for kubelet in self.running():
            self.signal(kubelet, signal.SIGTERM)

    def healthz_fault(self, kubelet: RunningKubelet) -> str:
        assert self._process is not None
        if self._clock.now - kubelet.started < START_SECONDS:
            return "connection refused"
        return "" if self._behaviour().healthy else "its /healthz returned 500"

    def read_node(self, kubelet: RunningKubelet) -> NodeReadiness:
        if self.api_away:
            raise OSError("connection timed out")
        behaviour = self._behaviour()
        return NodeReadiness(
            kubelet_version=f"v{behaviour.version}", ready=behaviour.ready, heartbeat=self._clock.now // 1
        )

    def read_version(self, binary: Path) -> str:
        return msgspec.json.decode(binary.read_bytes(), type=Behaviour).version

    def _supervise(self) -> None:
        if self._process is None and self._may_start():
            contents = self._installed.read_bytes()
            behaviour = msgspec.json.decode(contents, type=Behaviour)
            self.restarts.append(behaviour.version)
            if behaviour.starts and self._takes_settings(behaviour):
                self._pid += 1
                self._process = (self._pid, self._clock.now, contents)
                self._write_group()
            else:
                self._note_exit(failed=True)

    def _may_start(self) -> bool:
        if self.unit is not None:
            return self.unit.may_start()
        return self.supervised and self._clock.now - self._ended_at >= SUPERVISOR_SECONDS

    def _note_exit(self, *, failed: bool) -> None:
        self._ended_at = self._clock.now
        if self.unit is not None:
            self.unit.note_exit(failed=failed)

    def _write_group(self) -> None:
        if self.unit is not None and self._process is not None:
            file = self._host.proc / str(self._process[0]) / "cgroup"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"0::{self._group}\n")

    def _takes_settings(self, behaviour: Behaviour) -> bool:
        """As a kubelet does at its start: it goes by its drop-ins, and by no CPU state of another policy."""
        said = {"cpuManagerPolicy": "none"}
        for file in sorted(self._host.path(CONFIG_DIR).glob("*.conf")):
            said |= msgspec.json.decode(file.read_bytes(), type=dict[str, str])
        state, policy = self._host.path(CPU_STATE), said["cpuManagerPolicy"]
        if state.exists() and msgspec.json.decode(state.read_bytes())["policyName"] != policy:
            return False
        if policy not in behaviour.policies:
            return False
        self._policy = policy
        self._save(policy)
        return True

    def _save(self, policy: str) -> None:
        state = self._host.path(CPU_STATE)
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_bytes(msgspec.json.encode({"policyName": policy, "defaultCpuSet": "", "checksum": 1}))

    def _behaviour(self) -> Behaviour:
        assert self._process is not None
        return msgspec.json.decode(self._process[2], type=Behaviour)


class PlayedMachine:
    """What boots: `selected` is the kernel of the next boot, `stuck` a machine that does not go down.

    A restart forgets what lies on tmpfs, and the program that asked for it lives on, which no real one does: its death
    is the killer's business (tests/property/test_upgrade_killed.py).
    """

    def __init__(self, host: Host, kernel: str) -> None:
        self._proc = host.root / "proc/sys/kernel"
        self._run = host.root / RUN_DIRECTORY.removeprefix("/")
        (self._proc / "random").mkdir(parents=True)
        self.selected = kernel
        self.boots = 0
        self.stuck = False
        self.at_boot: list[Callable[[], object]] = []
        """What changes on the node while it boots."""
        self.ignores = False
        """Whether its systemctl finds itself in a chroot."""
        self.boot()

    @property
    def kernel(self) -> str:
        return (self._proc / "osrelease").read_text().strip()

    def boot(self) -> None:
        self.boots += 1
        (self._proc / "osrelease").write_text(f"{self.selected}\n")
        (self._proc / "random/boot_id").write_text(f"boot-{self.boots}\n")
        shutil.rmtree(self._run, ignore_errors=True)
        for change in self.at_boot:
            change()

    def run(self, words: list[str]) -> ProgramResult:
        match words:
            case ["/sbin/choose", "--default", kernel]:
                self.selected = kernel
            case ["/sbin/reboot"] | ["systemctl", "reboot"] if not self.stuck:
                if self.ignores:
                    return ProgramResult(code=0, output="Running in chroot, ignoring request.\n")
                self.boot()
            case ["/sbin/broken", *_]:
                return ProgramResult(code=3, output="no such entry\n")
        return ProgramResult(code=0, output="")


class PlayedPrograms:
    """The driver's own `unload`, played (`holders` are what keeps it busy), and the node's programs."""

    def __init__(self, host: Host, machine: PlayedMachine, clock: VirtualClock) -> None:
        self._host = host
        self._clock = clock
        self._machine = machine
        self.holders: list[str] = []
        self.calls = 0
        self.held_for = -2
        """Calls after which the holders have gone; below zero: they stay."""
        self.code = 0
        self.missing = False
        self.removal_seconds = 0
        """What the kernel needs to remove the modules."""
        self.kubelet: PlayedKubelet | None = None
        """The kubelet whose unit its systemctl controls."""
        self.services: PlayedServices | None = None
        """Other units of its systemd."""
        self.entered: list[str] = []
        """Programs that ran in the namespaces of the first process."""

    def run(self, words: list[str], *, seconds: float, env: dict[str, str] | None = None) -> ProgramResult:
        assert seconds > 0
        if (entered := words[: len(ENTER)] == list(ENTER)) or words[:2] == ["chroot", str(self._host.root)]:
            if entered and words[len(ENTER)] == "systemctl" and self.kubelet and self.kubelet.unit:
                return self.kubelet.unit.run(words[len(ENTER) + 1 :])
            if entered and self.services and words[len(ENTER)].startswith("system") and words[-1] != "reboot":
                return self.services.run(words[len(ENTER) :])
            self.entered += [" ".join(words[len(ENTER) :])] if entered else []
            assert {"/usr/local/sbin", "/usr/sbin", "/sbin"} <= set((env or {})["PATH"].split(":")), "as on the node"
            return self._machine.run(words[len(ENTER) if entered else 2 :])
        assert words[0] == "/bin/sh"
        self.calls += 1
        if self.removal_seconds:
            self._clock.wait(min(self.removal_seconds, seconds))
        if self.removal_seconds > seconds:
            raise ProcessError(f"unload did not end within {seconds:g} s")
        if self.missing:
            raise ProcessError("`/bin/sh` did not end within 60 s")
        self.held_for -= 1
        if self.holders and self.held_for != -1:
            return ProgramResult(code=15, output="\n".join(self.holders) + "\n")
        if self.code:
            return ProgramResult(code=self.code, output="it went wrong\n")
        (self._host.run / "sim" / "loaded.json").unlink()
        return ProgramResult(code=0, output="unloaded (simulated)\n")


class NodeWorld:
    """The folder with everything in it: kubelet 1.34.4 runs, the sim driver 1.0.0 is loaded, 1.35.4 was fetched."""

    def __init__(self, folder: Path, *, new: Behaviour | None = None, old: Behaviour | None = None) -> None:
        self.host = Host(root=folder)
        self.clock = VirtualClock()
        self.machine = PlayedMachine(self.host, KERNEL)
        self.old = old or Behaviour(version="1.34.4")
        self.new = new or Behaviour(version="1.35.4")
        self.write(BINARY, self.old)
        self.load_driver("1.0.0")
        self.host.path(f"/lib/modules/{KERNEL}").mkdir(parents=True)
        self.host.path(f"/lib/modules/{KERNEL}/modules.dep").touch()
        self.host.path(CONFIG_DIR).mkdir(parents=True)
        self.fetch(self.new)
        self.kubelet = PlayedKubelet(self.host, self.clock)
        self.programs = PlayedPrograms(self.host, self.machine, self.clock)
        self.clock.wait(10)

    def write(self, path: str, behaviour: Behaviour) -> bytes:
        target = self.host.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        contents = msgspec.json.encode(behaviour)
        target.write_bytes(contents)
        return contents

    def fetch(self, behaviour: Behaviour) -> None:
        """As an artifact image's `install` leaves it."""
        folder = f"{STATE_DIRECTORY}/kubelet/{behaviour.version}"
        contents = self.write(f"{folder}/kubelet", behaviour)
        digest = hashlib.sha256(contents).hexdigest()
        self.host.path(f"{folder}/kubelet.sha256").write_text(f"{digest}  kubelet\n")

    def load_driver(self, version: str, boot_id: str = "boot-1", devices: int = 2) -> None:
        """As the driver image's `load` leaves it."""
        folder = self.host.path(f"{RUN_DIRECTORY}/sim")
        (folder / "dev").mkdir(parents=True, exist_ok=True)
        for number in range(devices):
            (folder / "dev" / f"sim-gpu{number}").write_text(f"sim {version} sim-gpu{number} simulated\n")
        facts = {"vendor": "sim", "version": version, "kernel": "6.1.0-47", "bootId": boot_id, "devices": devices}
        (folder / "loaded.json").write_bytes(msgspec.json.encode({**facts, "simulated": True}))

    def installed(self) -> str:
        """Version of the kubelet that is installed."""
        return self.kubelet.read_version(self.host.path(BINARY))

    def runs(self) -> list[str]:
        """Versions of the kubelets that run."""
        return [self.kubelet.restarts[-1] for _ in self.kubelet.running()]

    def install_kernel(self, release: str) -> None:
        """As its package leaves it, and the programs that lead to it."""
        self.host.path(f"/lib/modules/{release}").mkdir(parents=True)
        self.host.path(f"/lib/modules/{release}/modules.dep").touch()
        for name in ("choose", "reboot", "broken"):
            program = self.host.path(f"/sbin/{name}")
            program.parent.mkdir(exist_ok=True)
            program.touch(mode=0o755)

    def run_systemd(self) -> None:
        """Make systemd the first process."""
        self.host.path("/run/systemd/system").mkdir(parents=True)

    def run_kubelet_as_unit(self, file: UnitFile, *, group: str = GROUP) -> PlayedUnit:
        """Make systemd the first process, and the kubelet a unit of it; in another group it is not one."""
        self.run_systemd()
        self.host.proc = self.host.root / "proc"
        self.programs.kubelet = self.kubelet
        self.kubelet.become_unit(file, group)
        assert self.kubelet.unit is not None
        return self.kubelet.unit

    def loaded(self) -> bool:
        """Whether a driver is loaded."""
        return (self.host.run / "sim" / "loaded.json").exists()

    def files(self) -> dict[str, bytes]:
        """Everything on the node's disk, for comparing ends."""
        paths = sorted(path for path in self.host.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.host.root)): path.read_bytes() for path in paths}
