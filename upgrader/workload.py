"""What a training loop imports to be asked for a checkpoint: standard library only, one file, made to be copied.

The page for job authors is docs/checkpointing.md. In short:

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
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

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
    """One pod's side of the conversation; local rank 0 uses it for the whole pod."""

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
        self._latest: dict[str, object] = {}
        if exit_on_sigterm and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _leave)

    def requested(self) -> int | None:
        """The id of a request that was not answered yet; None where there is none, or it was withdrawn."""
        asked = self._number("checkpoint-request")
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
        seen = False  # a member asked by its gang may be ahead of its own file
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
        temporary = self._answers / f".{name}.new"
        temporary.write_text(json.dumps(value) + "\n", encoding="utf-8")
        temporary.replace(self._answers / name)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)
