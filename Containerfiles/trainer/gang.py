"""Members of a gang find each other and sum their gradients, so that all are at the same step.

Rank 0 listens on its pod's address and writes that address with a token of this run to the shared volume (as torchrun's
file rendezvous, which needs neither DNS nor rights on the API server). The others connect, send their part in every
step, and receive the sum. A lost peer is a PeerLostError: all members connect again and continue from the last common
checkpoint.
"""

import json
import secrets
import socket
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

POLL_SECONDS = 0.2
CONNECT_SECONDS = 3.0


class PeerLostError(ConnectionError):
    """A member is lost; the gang has to connect again."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A member's values of a step, and the result: sums, and the maximum of the requests' numbers."""

    step: int
    gradient: list[float]
    loss: float
    request: int = 0
    park_seconds: float = 0.0

    def plus(self, other: "Part") -> "Part":
        """Combine two parts, in the order of ranks.

        Raises:
            PeerLostError: the members are not at the same step.
        """
        if other.step != self.step:
            raise PeerLostError(f"a member is at step {other.step}, not at {self.step}")
        return Part(
            step=self.step,
            gradient=[a + b for a, b in zip(self.gradient, other.gradient, strict=True)],
            loss=self.loss + other.loss,
            request=max(self.request, other.request),
            park_seconds=max(self.park_seconds, other.park_seconds),
        )


class Gang:
    """All members of one job, from the perspective of one. `peers` are by rank on rank 0, and rank 0 only on the
    others.
    """

    def __init__(self, directory: Path, *, member: int, members: int, address: str) -> None:
        self._meeting_point = directory / "rendezvous.json"
        self._member = member
        self._members = members
        self._address = address
        self._peers: dict[int, Line] = {}

    def meet(self, steps: list[int]) -> int:
        """Wait for all members; returns the latest step of which each member has a shard, or 0."""
        self.leave()
        if self._members == 1:
            return max(steps, default=0)
        return self._gather(steps) if self._member == 0 else self._join(steps)

    def reduce(self, part: Part) -> Part:
        """The sum over all members; blocks until each member is at this step.

        Raises:
            PeerLostError: a member is lost.
        """
        if self._members == 1:
            return part
        if self._member != 0:
            self._peers[0].send(asdict(part))
            return Part(**self._peers[0].receive())
        total = part
        for rank in range(1, self._members):
            total = total.plus(Part(**self._peers[rank].receive()))
        for line in self._peers.values():
            line.send(asdict(total))
        return total

    def leave(self) -> None:
        """Close all connections."""
        for line in self._peers.values():
            line.close()
        self._peers = {}

    def _gather(self, steps: list[int]) -> int:
        token = secrets.token_hex(8)
        common = set(steps)
        with socket.create_server((self._address, 0)) as server:
            self._announce(server.getsockname()[1], token)
            held: dict[int, set[int]] = {}
            while len(held) < self._members - 1:
                line = Line(server.accept()[0])
                hello = line.hello()
                if hello.get("token") != token or hello.get("member") not in range(1, self._members):
                    line.close()
                    continue
                rank = int(hello["member"])
                if rank in self._peers:  # it was restarted while it waited
                    self._peers[rank].close()
                self._peers[rank] = line
                held[rank] = set(hello["steps"])
        for others in held.values():
            common &= others
        start = max(common, default=0)
        for line in self._peers.values():
            line.send({"resume": start})
        return start

    def _join(self, steps: list[int]) -> int:
        pause = threading.Event()
        while True:
            line = self._connect()
            if line is not None:
                try:
                    line.send({"token": self._token, "member": self._member, "steps": steps})
                    start = int(line.receive()["resume"])
                except PeerLostError:
                    line.close()
                else:
                    self._peers[0] = line
                    return start
            pause.wait(POLL_SECONDS)

    def _connect(self) -> "Line | None":
        try:
            point = json.loads(self._meeting_point.read_text(encoding="utf-8"))
            self._token = point["token"]
            return Line(socket.create_connection((point["address"], point["port"]), timeout=CONNECT_SECONDS))
        except (FileNotFoundError, OSError):  # not written yet, or the address of an earlier run
            return None

    def _announce(self, port: int, token: str) -> None:
        temporary = self._meeting_point.with_suffix(".new")
        temporary.write_text(json.dumps({"address": self._address, "port": port, "token": token}), encoding="utf-8")
        temporary.replace(self._meeting_point)


class Line:
    """JSON lines over TCP, with keep-alives that detect a peer on a failed node in about 15 s."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._file: IO[Any] = connection.makefile("r", encoding="utf-8")

    def send(self, value: dict[str, object]) -> None:
        try:
            self._connection.sendall((json.dumps(value) + "\n").encode())
        except OSError as error:
            raise PeerLostError(str(error)) from error

    def receive(self) -> dict[str, Any]:
        try:
            text = self._file.readline()
        except OSError as error:
            raise PeerLostError(str(error)) from error
        if not text.endswith("\n"):
            raise PeerLostError("the peer closed the connection")
        value: dict[str, Any] = json.loads(text)
        return value

    def hello(self) -> dict[str, Any]:
        """The first line of a new connection; an empty greeting if it is missing or invalid."""
        self._connection.settimeout(CONNECT_SECONDS)
        try:
            said: object = self.receive()
            return said if isinstance(said, dict) else {}
        except (PeerLostError, ValueError):
            return {}
        finally:
            self._connection.settimeout(None)

    def close(self) -> None:
        self._file.close()
        self._connection.close()
