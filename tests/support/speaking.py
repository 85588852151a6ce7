"""The programs in the fleet's pods: each speaks the protocol of its way, and says what its trainer has written."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.cluster import FakeCluster
from upgrader.api.kubernetes import Pod
from upgrader.checkpoint.answers import ACK, PROGRESS
from upgrader.core.replies import Ran, Reply


class Speaking:
    """Answers by exec and by HTTP with what lies in the pod's files; remembers every request for a checkpoint."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.heard: list[tuple[str, str, str]] = []
        """Pod, way and action of everything that was said to a pod, reads not counted."""
        cluster.program, cluster.server = self.program, self.server

    def program(self, pod: Pod, argv: Sequence[str], env: Mapping[str, str]) -> Ran | None:
        """The command of the way exec, and the shell of the way signal."""
        action = env.get("CHECKPOINT_ACTION", argv[-1])
        if action in {"answer", "progress"}:
            return Ran(output=self._file(pod, ACK if action == "answer" else PROGRESS), code=0)
        self.heard.append((pod.metadata.name, "exec", action))
        return Ran(output=b"", code=0)

    def server(self, pod: Pod, method: str, endpoint: str, body: Any) -> Reply | None:
        """The endpoint of the way http."""
        if method == "GET":
            text = self._file(pod, PROGRESS if endpoint.endswith("/progress") else ACK)
            return Reply(status=200 if text else 204, body=text)
        self.heard.append((pod.metadata.name, "http", method))
        return Reply(status=202)

    def _file(self, pod: Pod, path: str) -> bytes:
        found = self._cluster.files.get((pod.metadata.uid, path), b"")
        return (found() if callable(found) else found) or b""
