"""The trainer of Containerfiles/trainer as real processes on this machine: members of one gang on a shared folder."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.programs import Started, soon, started
from tests.support.repository import ROOT


class Gang:
    """Members of one job. A `run` is what happens between two stops; pods of a later run have other uids."""

    def __init__(self, folder: Path, members: int = 2, *, job: str = "gang") -> None:
        self.members, self.job = members, job
        self.volume = folder / "volume"
        self._folder, self._app, self._run = folder, folder / "app", 0
        shutil.copytree(ROOT / "Containerfiles/trainer", self._app, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "upgrader/workload.py", self._app)

    @contextlib.contextmanager
    def running(self, *flags: str) -> Iterator[list[Started]]:
        """All members, until the block ends."""
        self._run += 1
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(self.member(number, *flags)) for number in range(self.members)]

    def member(self, number: int, *flags: str) -> contextlib.AbstractContextManager[Started]:
        """One member as one pod of this run."""
        for name in ("requests", "answers"):
            self._pod(number, name).mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-W", "error", str(self._app / "trainer.py"), "--job", self.job]
        words += ["--directory", str(self.volume), "--members", str(self.members)]
        words += ["--requests", str(self._pod(number, "requests")), "--answers", str(self._pod(number, "answers"))]
        identity = {"POD_UID": self.uid(number), "POD_NAME": f"{self.job}-{number}", "POD_IP": "127.0.0.1"}
        env = {**os.environ, **identity, "JOB_COMPLETION_INDEX": str(number)}
        return started([*words, *flags], log=self._folder / f"log-{self._run}-{number}", env=env)

    def uid(self, number: int) -> str:
        """Uid of a member's pod of this run."""
        return f"uid-{self._run}-{number}"

    def ask(self, request: str, *, members: list[int] | None = None, seconds: int = 60) -> None:
        """Show a request to members, as the downward API does; empty withdraws it."""
        for number in range(self.members) if members is None else members:
            folder = self._pod(number, "requests")
            (folder / "park-seconds").write_text(str(seconds))
            (folder / "checkpoint-request").write_text(request)

    def answer(self, number: int) -> dict[str, Any] | None:
        """A member's acknowledgement."""
        return self._read(number, "ack.json")

    def answers(self, request: int) -> list[dict[str, Any]]:
        """All members' acknowledgements as soon as each has answered this request."""
        soon(lambda: all((self.answer(n) or {}).get("requestId") == request for n in range(self.members)))
        return [self.answer(n) or {} for n in range(self.members)]

    def parked(self, request: int) -> list[dict[str, Any]]:
        """All members' acknowledgements as soon as each is parked for this request."""
        soon(lambda: all(answer["parked"] for answer in self.answers(request)))
        return self.answers(request)

    def events(self, number: int, *names: str) -> list[dict[str, Any]]:
        """Lines of a member's log, of these events or all."""
        path = self.volume / self.job / f"member-{number}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if not names or line["event"] in names]

    def steps(self, number: int) -> list[int]:
        """Steps that a member logged, in order."""
        return [line["step"] for line in self.events(number, "step")]

    def reached(self, step: int) -> None:
        """Wait until each member has logged a step at or past this one."""
        soon(lambda: all(self.steps(n)[-1:] >= [step] for n in range(self.members)))

    def progress(self, number: int) -> dict[str, Any] | None:
        return self._read(number, "progress.json")

    def _pod(self, number: int, name: str) -> Path:
        return self._folder / f"pod-{self._run}-{number}" / name

    def _read(self, number: int, name: str) -> dict[str, Any] | None:
        path = self._pod(number, "answers") / name
        return json.loads(path.read_text()) if path.exists() else None
