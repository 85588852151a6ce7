"""Library for training loops to receive checkpoint requests: a single file, standard library only, to be copied.

docs/guides/job-authors/checkpointing.md is the guide for job authors. In short:

    listener = CheckpointListener()
    for step in range(first, last):
        train(step)
        listener.progress(step)
        request = listener.requested()          # several processes: all-reduce it by MAX, so that all save one step
        if request is not None:
            listener.acknowledge(request, step, save(step))
            listener.park(request)              # waits until released; SIGTERM ends the process with code 143

The request is in files of a downward API volume; the answers are JSON files in an emptyDir, which are written
atomically.

With the methods exec, http and signal the request is in the folder of the answers:

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
"""Downward API volume with the items `checkpoint-request` and `park-seconds`; not by subPath, which is not updated."""

ANSWER_DIRECTORY = "/run/checkpoint"
"""emptyDir for `ack.json` and `progress.json`."""

TERMINATED = 128 + signal.SIGTERM
"""143: ended before the work is complete. 0 would count as complete."""

POLL_SECONDS = 0.2
UNKNOWN_PARK_SECONDS = 600.0
"""Parking time if another process of the gang received the request and the file of this pod was never updated."""


class CheckpointListener:
    """Receives requests and writes answers of a pod; used by local rank 0 for the whole pod."""

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
            requests: folder of the downward API volume.
            answers: folder of the emptyDir.
            pod_uid: UID of this pod. The default is the variable POD_UID (downward API, metadata.uid).
            exit_on_sigterm: install a handler that ends the process with exit code 143 by SystemExit. The first process
                of a container has no default action for SIGTERM: without a handler it is killed after its grace
                period. Handlers can only be installed in the main thread.
            monotonic: monotonic time in seconds; replaceable in tests.
            wait: waits for a number of seconds; replaceable in tests.

        Raises:
            ValueError: there is no pod UID, which distinguishes the answers of this pod from those of a replaced pod.
        """
        self._requests = Path(requests)
        self._answers = Path(answers)
        self._uid = pod_uid if pod_uid is not None else os.environ.get("POD_UID", "")
        if not self._uid:
            raise ValueError("no pod UID: set POD_UID by the downward API (fieldRef metadata.uid)")
        self._monotonic = monotonic
        self._wait = wait if wait is not None else threading.Event().wait
        self._answered = 0
        self._shown = 0  # the latest request in the file of this pod
        self._latest: dict[str, object] = {}
        if exit_on_sigterm and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _raise_exit)

    def requested(self) -> int | None:
        """The ID of a request without an answer; None if there is none or it was withdrawn."""
        request_id = self._read_number("checkpoint-request")
        self._shown = request_id or self._shown
        return request_id if request_id is not None and request_id > self._answered else None

    def acknowledge(self, request_id: int, step: int, uri: str) -> None:
        """Acknowledge that everything up to `step` is saved at `uri` (a path that outlives the pod, or a URI)."""
        self._answered = max(self._answered, request_id)
        self._write_answer({"requestId": request_id, "podUid": self._uid, "step": step, "uri": uri, "parked": False})

    def refuse(self, request_id: int, why: str, retry_after_seconds: int | None = None) -> None:
        """Refuse a request; `why` is shown to users, and the gang continues to train.

        The next request comes after `retry_after_seconds`, or after the time in the plan of the rollout.
        """
        self._answered = max(self._answered, request_id)
        later = {} if retry_after_seconds is None else {"retryAfterSeconds": retry_after_seconds}
        refusal = {"requestId": request_id, "podUid": self._uid, "step": 0, "parked": False, "refused": why}
        self._write_answer({**refusal, **later})

    def park(self, request_id: int, seconds: float | None = None) -> str:
        """Wait until the request is withdrawn, replaced by a later one, or park-seconds are over.

        A SIGTERM in the meantime ends the process with exit code 143. On return the acknowledgement is changed to not
        parked, so that no member is stopped that continues to train.

        Args:
            request_id: the acknowledged request.
            seconds: maximum duration. The default is the file park-seconds of the pod.

        Returns:
            The reason of the return: `withdrawn`, `replaced` or `expired`.

        Raises:
            ValueError: this request was not acknowledged.
        """
        if self._latest.get("requestId") != request_id:
            raise ValueError(f"request {request_id} was not acknowledged")
        parked_at = self._monotonic()
        self._write_answer({**self._latest, "parked": True})
        why = self._until_released(request_id, parked_at, seconds)
        self._write_answer({**self._latest, "parked": False})
        return why

    def progress(self, step: int) -> None:
        """Record a completed step; after a restart this proves progress beyond the acknowledged step."""
        self._write("progress.json", {"step": step, "podUid": self._uid})

    def park_seconds(self) -> float | None:
        """The requested parking time in seconds; None if there is none."""
        seconds = self._read_number("park-seconds")
        return None if seconds is None else float(seconds)

    def _until_released(self, request_id: int, parked_at: float, seconds: float | None) -> str:
        was_shown = self._shown == request_id  # with a request from another member, the file may be updated later
        while True:
            shown = self._read_number("checkpoint-request")
            if shown == request_id:
                was_shown = True
            elif shown is not None and shown > request_id:
                return "replaced"
            elif was_shown:
                return "withdrawn"
            limit = seconds if seconds is not None else self.park_seconds() if was_shown else None
            remaining = parked_at + (UNKNOWN_PARK_SECONDS if limit is None else limit) - self._monotonic()
            if remaining <= 0:
                return "expired"
            self._wait(min(POLL_SECONDS, remaining))

    def _read_number(self, item: str) -> int | None:
        """A number from the downward API volume; the file of an annotation that does not exist is empty."""
        try:
            text = (self._requests / item).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        if not text:
            return None
        if not (text.isascii() and text.isdigit()):
            print(f"checkpoint: {item} is not a number and is ignored: {text[:40]!r}", file=sys.stderr, flush=True)
            return None
        return int(text)

    def _write_answer(self, answer: dict[str, object]) -> None:
        self._latest = answer
        self._write("ack.json", answer)

    def _write(self, name: str, value: dict[str, object]) -> None:
        _replace_file(self._answers / name, json.dumps(value) + "\n")


class Mailbox:
    """The folder of requests by exec or HTTP, and of their answers."""

    def __init__(self, folder: str | Path = ANSWER_DIRECTORY) -> None:
        self._folder = Path(folder)

    def write_request(self, request_id: int, park_seconds: int) -> None:
        """Write a request for the listener; repetition has no effect."""
        _replace_file(self._folder / "park-seconds", str(park_seconds))
        _replace_file(self._folder / "checkpoint-request", str(request_id))

    def withdraw(self, request_id: int) -> None:
        """Withdraw this request, but not a later one."""
        if self.read("checkpoint-request").strip() == str(request_id):
            _replace_file(self._folder / "checkpoint-request", "")

    def read(self, name: str) -> str:
        """Contents of a file; empty if it does not exist."""
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""


def serve(port: int, *, path: str = "/checkpoint", folder: str | Path = ANSWER_DIRECTORY) -> ThreadingHTTPServer:
    """Serve the method `http` in a thread, for a listener on the same folder.

    POST requests a checkpoint, GET returns the acknowledgement, GET `/progress` below it the latest step, and DELETE
    withdraws the request.
    """
    server = ThreadingHTTPServer(("", port), _create_handler(Mailbox(folder), path))
    threading.Thread(target=server.serve_forever, name="checkpoint-http", daemon=True).start()
    return server


def _create_handler(mailbox: Mailbox, path: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
                request_id, seconds, uid = int(body["requestId"]), int(body["parkSeconds"]), str(body["podUid"])
            except (ValueError, KeyError, TypeError):
                return self._say(400, "")
            if uid != os.environ.get("POD_UID", uid):
                return self._say(421, "")  # for an earlier pod of the same name
            if urlsplit(self.path).path != path:
                return self._say(404, "")
            mailbox.write_request(request_id, seconds)
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
            """Write nothing to the log of the job."""

    return Handler


def run_command(folder: str | Path = ANSWER_DIRECTORY) -> int:
    """The method `exec`: execute CHECKPOINT_ACTION and print the answer."""
    environment, mailbox = os.environ, Mailbox(folder)
    if environment.get("POD_UID", environment["CHECKPOINT_POD_UID"]) != environment["CHECKPOINT_POD_UID"]:
        return 1  # for an earlier pod of the same name
    match environment["CHECKPOINT_ACTION"]:
        case "request":
            mailbox.write_request(int(environment["CHECKPOINT_REQUEST"]), int(environment["CHECKPOINT_PARK_SECONDS"]))
        case "withdraw":
            mailbox.withdraw(int(environment["CHECKPOINT_REQUEST"]))
        case "answer":
            print(mailbox.read("ack.json"), end="")
        case "progress":
            print(mailbox.read("progress.json"), end="")
        case other:
            print(f"checkpoint: unknown action: {other}", file=sys.stderr)
            return 2
    return 0


def _replace_file(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _raise_exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


if __name__ == "__main__":
    sys.exit(run_command())
