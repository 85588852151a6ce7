"""What a training loop imports to be asked for a checkpoint: standard library only, one file, made to be copied.

The page for job authors is docs/guides/job-authors/checkpointing.md. In short:

    listener = CheckpointListener()
    for step in range(first, last):
        train(step)
        listener.progress(step)
        request = listener.requested()          # several processes: all-reduce it by MAX, so that all save at one step
        if request is not None:
            listener.acknowledge(request, step, save(step))
            listener.park(request)              # takes no step until told; SIGTERM ends the process with code 143

The pod shows the request as files of a downward-API volume and offers the answers in an emptyDir: plain numbers, and
small JSON that is written under another name first, so that a reader never sees half of it.

Asked by exec, HTTP or signal, the request lies beside the answers; then the listener is told so:

    listener = CheckpointListener(requests=ANSWER_DIRECTORY)
    serve(8080)                                 # HTTP: checkpoint-method http, checkpoint-endpoint :8080/checkpoint
                                                # exec: checkpoint-command ["python3", "/app/workload.py"]
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from urllib.parse import parse_qs, urlsplit

REQUEST_DIRECTORY = "/etc/gpu-upgrader"
"""Downward-API volume with the items `checkpoint-request` and `park-seconds`; never by subPath, which never changes."""

ANSWER_DIRECTORY = "/run/checkpoint"
"""emptyDir for `ack.json` and `progress.json`."""

TERMINATED = 128 + signal.SIGTERM
"""143: stopped while work is left. Never 0, which would count as finished."""

POLL_SECONDS = 0.2
UNKNOWN_PARK_SECONDS = 600.0
"""Parking time where another process of the gang was asked and this pod's own file never followed."""


class CheckpointListener:
    """One pod's side of the request; local rank 0 uses it for the whole pod."""

    def __init__(
        self,
        *,
        requests: str | Path = REQUEST_DIRECTORY,
        answers: str | Path = ANSWER_DIRECTORY,
        pod_uid: str | None = None,
        exit_on_sigterm: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """
        Args:
            requests: folder of the downward-API volume.
            answers: folder of the emptyDir.
            pod_uid: this pod's uid; default is the environment variable POD_UID (downward API, metadata.uid).
            exit_on_sigterm: install a handler that ends the process with 143 by SystemExit, wherever it is.
                A container's first process has no default action for SIGTERM: without a handler it would be killed
                when its grace period is over. Handlers belong to the main thread; elsewhere none is installed.
            monotonic: seconds on a clock that never jumps; replaceable in tests.
            wait: blocks for so many seconds; replaceable in tests.

        Raises:
            ValueError: no pod uid, so that no answer could be told from a replaced pod's.
        """
        self._requests = Path(requests)
        self._answers = Path(answers)
        self._uid = pod_uid if pod_uid is not None else os.environ.get("POD_UID", "")
        if not self._uid:
            raise ValueError("no pod uid: set POD_UID from the downward API (fieldRef metadata.uid)")
        self._monotonic = monotonic
        self._wait = wait if wait is not None else threading.Event().wait
        self._answered = 0
        self._shown = 0  # the latest request that this pod's own file has shown
        self._latest: dict[str, object] = {}
        if exit_on_sigterm and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _leave)

    def requested(self) -> int | None:
        """The id of a request that was not answered yet; None where there is none, or it was withdrawn."""
        asked = self._number("checkpoint-request")
        self._shown = asked or self._shown
        return asked if asked is not None and asked > self._answered else None

    def acknowledge(self, request_id: int, step: int, uri: str) -> None:
        """Everything up to `step` is safe at `uri` (a path that survives the pod, or a URI). Not parked yet."""
        self._answered = max(self._answered, request_id)
        self._answer({"requestId": request_id, "podUid": self._uid, "step": step, "uri": uri, "parked": False})

    def refuse(self, request_id: int, why: str, retry_after_seconds: int | None = None) -> None:
        """Not now, or not at all; the sentence is shown to people, and the gang trains on.

        With `retry_after_seconds` it is left alone for that long, else for as long as the rollout's plan says.
        """
        self._answered = max(self._answered, request_id)
        later = {} if retry_after_seconds is None else {"retryAfterSeconds": retry_after_seconds}
        refusal = {"requestId": request_id, "podUid": self._uid, "step": 0, "parked": False, "refused": why}
        self._answer({**refusal, **later})

    def park(self, request_id: int, seconds: float | None = None) -> str:
        """Take no step until the request is withdrawn, replaced by a later one, or park-seconds are over.

        A SIGTERM meanwhile ends the process with 143. When it returns the acknowledgement stands as not parked, so
        that nobody stops a member that trains on.

        Args:
            request_id: what was acknowledged.
            seconds: how long at most; default is the pod's own park-seconds file.

        Returns:
            Why it goes on: `withdrawn`, `replaced` or `expired`.

        Raises:
            ValueError: this request was not acknowledged.
        """
        if self._latest.get("requestId") != request_id:
            raise ValueError(f"request {request_id} was not acknowledged: there is nothing to park for")
        parked_at = self._monotonic()
        self._answer({**self._latest, "parked": True})
        why = self._until_released(request_id, parked_at, seconds)
        self._answer({**self._latest, "parked": False})
        return why

    def progress(self, step: int) -> None:
        """Tell which step is done; after a restart this proves that the gang came past its acknowledged step."""
        self._write("progress.json", {"step": step, "podUid": self._uid})

    def park_seconds(self) -> float | None:
        """How long the request in the pod's files asks to park; None where there is none."""
        seconds = self._number("park-seconds")
        return None if seconds is None else float(seconds)

    def _until_released(self, request_id: int, parked_at: float, seconds: float | None) -> str:
        seen = self._shown == request_id  # a member asked by its gang may be ahead of its own file
        while True:
            asked = self._number("checkpoint-request")
            if asked == request_id:
                seen = True
            elif asked is not None and asked > request_id:
                return "replaced"
            elif seen:
                return "withdrawn"
            limit = seconds if seconds is not None else self.park_seconds() if seen else None
            left = parked_at + (UNKNOWN_PARK_SECONDS if limit is None else limit) - self._monotonic()
            if left <= 0:
                return "expired"
            self._wait(min(POLL_SECONDS, left))

    def _number(self, item: str) -> int | None:
        """A positive number from the downward-API volume; an annotation that is not there shows as an empty file."""
        try:
            text = (self._requests / item).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        if not text:
            return None
        if not (text.isascii() and text.isdigit()):
            print(f"checkpoint: {item} is no number and does not count: {text[:40]!r}", file=sys.stderr, flush=True)
            return None
        return int(text)

    def _answer(self, answer: dict[str, object]) -> None:
        self._latest = answer
        self._write("ack.json", answer)

    def _write(self, name: str, value: dict[str, object]) -> None:
        _replace(self._answers / name, json.dumps(value) + "\n")


class Mailbox:
    """The folder in which a request lies that came by exec or HTTP, beside the answers to it."""

    def __init__(self, folder: str | Path = ANSWER_DIRECTORY) -> None:
        self._folder = Path(folder)

    def ask(self, request_id: int, park_seconds: int) -> None:
        """Show a request to the listener; again under the same number changes nothing."""
        _replace(self._folder / "park-seconds", str(park_seconds))
        _replace(self._folder / "checkpoint-request", str(request_id))

    def withdraw(self, request_id: int) -> None:
        """Take this request back, but no later one."""
        if self.read("checkpoint-request").strip() == str(request_id):
            _replace(self._folder / "checkpoint-request", "")

    def read(self, name: str) -> str:
        """What lies there under a name; empty where there is nothing."""
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""


def serve(port: int, *, path: str = "/checkpoint", folder: str | Path = ANSWER_DIRECTORY) -> ThreadingHTTPServer:
    """Answer the method `http` in a thread of its own, for a listener on the same folder.

    POST asks, GET gives the acknowledgement and GET below `/progress` the latest step, DELETE withdraws.
    """
    server = ThreadingHTTPServer(("", port), _handler(Mailbox(folder), path))
    threading.Thread(target=server.serve_forever, name="checkpoint-http", daemon=True).start()
    return server


def _handler(mailbox: Mailbox, path: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
                request_id, seconds, uid = int(asked["requestId"]), int(asked["parkSeconds"]), str(asked["podUid"])
            except (ValueError, KeyError, TypeError):
                return self._say(400, "")
            if uid != os.environ.get("POD_UID", uid):
                return self._say(421, "")  # meant for a pod that had this one's name
            if urlsplit(self.path).path != path:
                return self._say(404, "")
            mailbox.ask(request_id, seconds)
            return self._say(202, "")

        def do_GET(self) -> None:
            names = {path: "ack.json", f"{path}/progress": "progress.json"}
            name = names.get(urlsplit(self.path).path)
            text = mailbox.read(name) if name else ""
            self._say(404 if name is None else 200 if text else 204, text)

        def do_DELETE(self) -> None:
            number = parse_qs(urlsplit(self.path).query).get("requestId", [""])[0]
            if number.isdigit():
                mailbox.withdraw(int(number))
            self._say(204 if number.isdigit() else 400, "")

        def _say(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A job's log is its own."""

    return Handler


def command(folder: str | Path = ANSWER_DIRECTORY) -> int:
    """The method `exec`: do what CHECKPOINT_ACTION says, and print the answer to it."""
    said, mailbox = os.environ, Mailbox(folder)
    if said.get("POD_UID", said["CHECKPOINT_POD_UID"]) != said["CHECKPOINT_POD_UID"]:
        return 1  # meant for a pod that had this one's name
    match said["CHECKPOINT_ACTION"]:
        case "request":
            mailbox.ask(int(said["CHECKPOINT_REQUEST"]), int(said["CHECKPOINT_PARK_SECONDS"]))
        case "withdraw":
            mailbox.withdraw(int(said["CHECKPOINT_REQUEST"]))
        case "answer":
            print(mailbox.read("ack.json"), end="")
        case "progress":
            print(mailbox.read("progress.json"), end="")
        case other:
            print(f"checkpoint: no such action: {other}", file=sys.stderr)
            return 2
    return 0


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


if __name__ == "__main__":
    sys.exit(command())
