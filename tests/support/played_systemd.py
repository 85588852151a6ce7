"""systemd as far as the unit of a kubelet needs it: Restart=, start limits and systemctl, on a virtual clock.

As in systemd.service(5) and systemd.unit(5): SIGTERM is a clean exit, the start limit counts the starts by systemctl
too, and `reset-failed` resets it.
"""

from collections.abc import Callable

import msgspec

from upgrader.node.host.host import Host
from upgrader.node.host.programs import ProgramResult

UNIT = "kubelet.service"
GROUP = f"/system.slice/{UNIT}"


class UnitFile(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a unit; the defaults are those of systemd."""

    restart: str = "no"
    restart_seconds: float = 0.1
    burst: int = 5
    interval: float = 10.0


KUBEADM = UnitFile(restart="always", restart_seconds=10, burst=0)
LIMITED = UnitFile(restart="always", interval=3600)
ON_FAILURE = UnitFile(restart="on-failure", restart_seconds=5)
BY_HAND = UnitFile()


class PlayedUnit:
    """The unit of a kubelet. `now` reads the clock, `stop` sends SIGTERM to its process, if it has one."""

    def __init__(self, file: UnitFile, now: Callable[[], float], stop: Callable[[], None]) -> None:
        self._file = file
        self._now = now
        self._stop = stop
        self._due: float | None = None
        """When it is started next; None: not by itself."""
        self._starts = [now()]
        self.state = "active"
        self.commands: list[str] = []
        self.failing: list[str] = []
        """Commands of systemctl that fail."""

    def may_start(self) -> bool:
        """Whether it starts its process at this moment."""
        if self._due is None or self._now() < self._due:
            return False
        self._due = None
        self._starts = [start for start in self._starts if self._now() - start < self._file.interval]
        if self._file.burst and len(self._starts) >= self._file.burst:
            self.state = "failed"
            return False
        self._starts.append(self._now())
        self.state = "active"
        return True

    def note_exit(self, *, failed: bool) -> None:
        """Its process has ended."""
        if self._due is not None:  # by a restart
            return
        if self._file.restart == "always" or (self._file.restart == "on-failure" and failed):
            self._due, self.state = self._now() + self._file.restart_seconds, "activating"
        else:
            self.state = "failed" if failed else "inactive"

    def run(self, words: list[str]) -> ProgramResult:
        """systemctl with these arguments."""
        self.commands.append(words[0])
        if words[0] in self.failing:
            return ProgramResult(code=1, output="Connection timed out\n")
        match words:
            case ["show", "--property=ActiveState", name] if name == UNIT:
                return ProgramResult(code=0, output=f"ActiveState={self.state}\n")
            case ["show", "--property=ControlGroup", name]:
                return ProgramResult(code=0, output=f"ControlGroup={GROUP if name == UNIT else ''}\n")
            case ["reset-failed", name] if name == UNIT:
                self._starts = []
                self.state = "inactive" if self.state == "failed" else self.state
            case ["restart", "--no-block", name] if name == UNIT:
                self._stop()
                self._due, self.state = self._now(), "activating"
            case _:
                raise AssertionError(words)
        return ProgramResult(code=0, output="")


class PlayedServices:
    """Services of the node by name with their states, and the transient path unit that waits for a driver."""

    def __init__(self, host: Host, *active: str) -> None:
        self._host = host
        self.states = dict.fromkeys(active, "active")
        self.waiting: tuple[str, str] | None = None
        """The path and the script."""
        self.failing: list[str] = []
        """Commands that fail."""

    def run(self, words: list[str]) -> ProgramResult:
        """systemctl or systemd-run with these words."""
        if words[0] in self.failing or words[1] in self.failing:
            return ProgramResult(code=1, output="Connection timed out\n")
        match words:
            case ["systemctl", "show", "--property=ActiveState", name]:
                return ProgramResult(code=0, output=f"ActiveState={self.states.get(name, 'inactive')}\n")
            case ["systemctl", "stop", *names] if names[0].endswith(".path"):
                self.waiting = None
            case ["systemctl", "stop", *names]:
                self.states |= dict.fromkeys(names, "inactive")
            case ["systemctl", "start", "--no-block", *names]:
                self.states |= dict.fromkeys(names, "active")
            case ["systemctl", "reset-failed", _]:
                pass
            case ["systemd-run", _, path, _, _, "/bin/sh", "-c", script]:
                self.waiting = path.removeprefix("--path-property=PathExists="), script
                self.look()
            case _:
                raise AssertionError(words)
        return ProgramResult(code=0, output="")

    def look(self) -> None:
        """Run the script of the path unit if its path exists."""
        if self.waiting is None or not self._host.path(self.waiting[0]).exists():
            return
        start, remove = self.waiting[1].split("; ")
        self.waiting = None
        self.run(start.split())
        self._host.path(remove.removeprefix("rm -f ")).unlink()
