"""Examples of docs/examples/checkpointing as real processes, each in pods whose files stand in a folder of the test."""

import contextlib
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.programs import Started, soon, started
from tests.support.repository import ROOT

EXAMPLES = ROOT / "docs/examples/checkpointing"
FAST = {"STEP_SECONDS": "0.01", "STEPS": "100000", "CHECKPOINT_EVERY": "100000"}


def free_port() -> int:
    """A port of this machine that no program listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class PodFiles:
    """What the contract puts into one pod: the downward-API volume and the emptyDir."""

    def __init__(self, folder: Path, uid: str) -> None:
        self.uid, self.requests, self.answers = uid, folder / "requests", folder / "answers"
        self.requests.mkdir(parents=True)
        self.answers.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        return {"POD_UID": self.uid, "REQUESTS": str(self.requests), "ANSWERS": str(self.answers)}

    def ask(self, request: str, *, seconds: int = 60) -> None:
        """Show a request, as the kubelet does; empty withdraws it."""
        for name, text in (("park-seconds", str(seconds)), ("checkpoint-request", request)):
            (self.requests / ".new").write_text(text)
            (self.requests / ".new").replace(self.requests / name)

    def answer(self) -> dict[str, Any]:
        """The acknowledgement as it is now; nothing where there is none."""
        return self._read("ack.json")

    def progress(self) -> dict[str, Any]:
        return self._read("progress.json")

    def answered(self, request: int) -> dict[str, Any]:
        """The acknowledgement of this request, parked or not: for a park so short that its end may come first."""
        soon(lambda: self.answer().get("requestId") == request)
        return self.answer()

    def parked(self, request: int) -> dict[str, Any]:
        """The acknowledgement as soon as it says parked for this request."""
        soon(lambda: (self.answer().get("requestId"), self.answer().get("parked")) == (request, True))
        return self.answer()

    def _read(self, name: str) -> dict[str, Any]:
        path = self.answers / name
        return json.loads(path.read_text()) if path.exists() else {}


class Example:
    """One example over its runs: the checkpoints stay, pods and logs are new each time."""

    def __init__(self, folder: Path, *, pods: int = 1, environment: Mapping[str, str] = FAST) -> None:
        self._folder, self._environment, self._run, self._count = folder, environment, 0, pods
        self.pods: list[PodFiles] = []
        self.logs: list[Path] = []
        self.checkpoints = folder / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        self.app = folder / "app"
        shutil.copytree(EXAMPLES, self.app)
        shutil.copy(ROOT / "upgrader/workload.py", self.app)

    @contextlib.contextmanager
    def running(self, *words: list[str], **extra: str) -> Iterator[list[Started]]:
        """One program per list of words, shared out over new pods in order; `extra` are variables of all."""
        self._run += 1
        self.pods = [
            PodFiles(self._folder / f"run-{self._run}/pod-{n}", f"uid-{self._run}-{n}") for n in range(self._count)
        ]
        self.logs = [self._folder / f"run-{self._run}/log-{number}" for number in range(len(words))]
        per_pod = len(words) // self._count
        with contextlib.ExitStack() as stack:
            yield [
                stack.enter_context(
                    started(
                        each,
                        log=self.logs[number],
                        env={
                            **os.environ,
                            **self._environment,
                            "CHECKPOINTS": str(self.checkpoints),
                            "PYTHONPATH": f"{self.app}:{ROOT}",
                            "PYTHONWARNINGS": "error",
                            **self.pods[number // per_pod].environment,
                            "PIDS": str(self._folder / f"run-{self._run}/pids-{number // per_pod}"),
                            "RANK": str(number),
                            "LOCAL_RANK": str(number % per_pod),
                            "OMPI_COMM_WORLD_RANK": str(number),
                            "OMPI_COMM_WORLD_LOCAL_RANK": str(number % per_pod),
                            **extra,
                        },
                    )
                )
                for number, each in enumerate(words)
            ]

    def python(self, name: str) -> list[str]:
        """Words that run an example."""
        return [sys.executable, str(self.app / name)]

    def module(self, name: str) -> list[str]:
        """Words that run a program of the tests."""
        return [sys.executable, "-m", name]

    def steps(self, log: int = 0, rank: str = r"\d+") -> list[int]:
        """Steps that a process (of this rank, where several share a log) says it took."""
        return [int(one) for one in re.findall(rf"^(?:.*rank {rank}: )?step (\d+)$", self.text(log), re.MULTILINE)]

    def text(self, log: int = 0) -> str:
        return self.logs[log].read_text()

    def said(self, words: str, log: int = 0) -> None:
        """Wait until a process has said this."""
        soon(lambda: words in self.text(log))
