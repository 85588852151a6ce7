"""The programs in the fleet's pods: each implements the protocol of its checkpoint method with its trainer's files.

tests/contract/test_checkpoint_methods.py compares them, and the trainers, with real programs in real pods.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from upgrader.api.kubernetes import Pod
from upgrader.checkpoint.answers import ACK, PROGRESS
from upgrader.checkpoint.signal import WITHDRAW
from upgrader.core.replies import CommandResult, Reply
from upgrader_dev.simulated.apiserver.cluster import FakeCluster

PROGRAMS = frozenset({"/app/save", "python3", "sh"})
ENDPOINT = ":8080/checkpoint"

Mailbox = dict[str, tuple[int, int]]
"""Requests by exec, HTTP or signal: pod uid to request id and park seconds."""


class PodPrograms:
    """Answers exec and HTTP requests with the files of the pod, and records checkpoint requests."""

    def __init__(self, cluster: FakeCluster, mailbox: Mailbox) -> None:
        self._cluster, self._mailbox = cluster, mailbox
        self.received: list[tuple[str, str, str]] = []
        """Pod, method and action of every request to a pod, without reads."""
        cluster.program, cluster.server = self.run_command, self.handle_request

    def run_command(self, pod: Pod, argv: Sequence[str], env: Mapping[str, str]) -> CommandResult | None:
        """The command of the method exec, and the shell of the method signal."""
        if argv[0] not in PROGRAMS:
            return CommandResult(output=b"", code=127)
        action = env.get("CHECKPOINT_ACTION", argv[-1])
        if action in {"answer", "progress"}:
            return CommandResult(output=self._read_file(pod, ACK if action == "answer" else PROGRESS), code=0)
        self.received.append((pod.metadata.name, "exec", action))
        if action in {"withdraw", WITHDRAW[-1]}:
            self._remove_request(pod, int(env["CHECKPOINT_REQUEST"]))
        else:
            self._store_request(pod, int(env["CHECKPOINT_REQUEST"]), int(env["CHECKPOINT_PARK_SECONDS"]))
        return CommandResult(output=b"", code=0)

    def handle_request(self, pod: Pod, method: str, endpoint: str, body: Any) -> Reply | None:  # noqa: ANN401 - JSON
        """The endpoint of the method http."""
        url = urlsplit(endpoint)
        port, path = ENDPOINT.split("/", 1)
        if not endpoint.startswith(f"{port}/"):
            return None
        if url.path not in {ENDPOINT, f"{ENDPOINT}/progress"}:
            return Reply(status=404)
        if method == "GET":
            text = self._read_file(pod, PROGRESS if url.path.endswith(f"{path}/progress") else ACK)
            return Reply(status=200 if text else 204, body=text)
        self.received.append((pod.metadata.name, "http", method))
        if method == "POST":
            self._store_request(pod, body["requestId"], body["parkSeconds"])
            return Reply(status=202)
        self._remove_request(pod, int(parse_qs(url.query)["requestId"][0]))
        return Reply(status=204)

    def _store_request(self, pod: Pod, request: int, park_seconds: int) -> None:
        self._mailbox[pod.metadata.uid] = (request, park_seconds)

    def _remove_request(self, pod: Pod, request: int) -> None:
        if self._mailbox.get(pod.metadata.uid, (0, 0))[0] == request:
            del self._mailbox[pod.metadata.uid]

    def _read_file(self, pod: Pod, path: str) -> bytes:
        content = self._cluster.files.get((pod.metadata.uid, path), b"")
        return (content() if callable(content) else content) or b""
