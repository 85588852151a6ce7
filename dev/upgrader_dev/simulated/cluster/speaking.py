"""The programs in the fleet's pods: each speaks the protocol of its way, and says what its trainer has written.

tests/contract/test_checkpoint_methods.py holds them, and the trainers behind them, against real ones in real pods.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from upgrader.api.kubernetes import Pod
from upgrader.checkpoint.answers import ACK, PROGRESS
from upgrader.checkpoint.signal import WITHDRAW
from upgrader.core.replies import Ran, Reply
from upgrader_dev.simulated.apiserver.cluster import FakeCluster

PROGRAMS = frozenset({"/app/save", "python3", "sh"})
ENDPOINT = ":8080/checkpoint"

Mailbox = dict[str, tuple[int, int]]
"""Requests that came by exec, HTTP or signal: pod uid to request id and park-seconds."""


class Speaking:
    """Answers by exec and by HTTP with what lies in the pod's files; remembers every request for a checkpoint."""

    def __init__(self, cluster: FakeCluster, mailbox: Mailbox) -> None:
        self._cluster, self._mailbox = cluster, mailbox
        self.heard: list[tuple[str, str, str]] = []
        """Pod, way and action of everything that was said to a pod, reads not counted."""
        cluster.program, cluster.server = self.program, self.server

    def program(self, pod: Pod, argv: Sequence[str], env: Mapping[str, str]) -> Ran | None:
        """The command of the way exec, and the shell of the way signal."""
        if argv[0] not in PROGRAMS:
            return Ran(output=b"", code=127)
        action = env.get("CHECKPOINT_ACTION", argv[-1])
        if action in {"answer", "progress"}:
            return Ran(output=self._file(pod, ACK if action == "answer" else PROGRESS), code=0)
        self.heard.append((pod.metadata.name, "exec", action))
        if action in {"withdraw", WITHDRAW[-1]}:
            self._withdraw(pod, int(env["CHECKPOINT_REQUEST"]))
        else:
            self._ask(pod, int(env["CHECKPOINT_REQUEST"]), int(env["CHECKPOINT_PARK_SECONDS"]))
        return Ran(output=b"", code=0)

    def server(self, pod: Pod, method: str, endpoint: str, body: Any) -> Reply | None:  # noqa: ANN401 - JSON
        """The endpoint of the way http."""
        where = urlsplit(endpoint)
        port, path = ENDPOINT.split("/", 1)
        if not endpoint.startswith(f"{port}/"):
            return None
        if where.path not in {ENDPOINT, f"{ENDPOINT}/progress"}:
            return Reply(status=404)
        if method == "GET":
            text = self._file(pod, PROGRESS if where.path.endswith(f"{path}/progress") else ACK)
            return Reply(status=200 if text else 204, body=text)
        self.heard.append((pod.metadata.name, "http", method))
        if method == "POST":
            self._ask(pod, body["requestId"], body["parkSeconds"])
            return Reply(status=202)
        self._withdraw(pod, int(parse_qs(where.query)["requestId"][0]))
        return Reply(status=204)

    def _ask(self, pod: Pod, request: int, park_seconds: int) -> None:
        self._mailbox[pod.metadata.uid] = (request, park_seconds)

    def _withdraw(self, pod: Pod, request: int) -> None:
        if self._mailbox.get(pod.metadata.uid, (0, 0))[0] == request:
            del self._mailbox[pod.metadata.uid]

    def _file(self, pod: Pod, path: str) -> bytes:
        found = self._cluster.files.get((pod.metadata.uid, path), b"")
        return (found() if callable(found) else found) or b""
