"""A small training job that computes, checkpoints, parks and resumes, for the demo and the tests.

It runs as one pod, or as the members of an Indexed Job that train in step (gang.py). Its GPUs are the simulated device
files of the `sim` device plugin, which it keeps open while it runs; the computation uses the CPU. See
docs/guides/job-authors/checkpointing.md.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from gang import Gang, Part, PeerLostError
from journal import Journal
from regression import Regression
from workload import CheckpointListener

BEHAVIOURS = {
    "good": "acknowledge and park",
    "no-park": "acknowledge as parked, and train on all the same (negative control: steps get lost)",
    "unparked": "acknowledge honestly as not parked, and train on",
    "silent": "never answer",
    "refuse": "answer that now is not the time, and train on",
    "refuse-once": "refuse the first request of this process, park at the next one",
    "wrong-id": "answer the request before this one",
    "wrong-step": "acknowledge a step that the other members did not save",
    "wrong-uid": "answer as another pod",
}


class Trainer:
    """One member: runs steps until they are done or the process is stopped."""

    def __init__(self, options: argparse.Namespace) -> None:
        directory = options.directory / options.job
        directory.mkdir(parents=True, exist_ok=True)
        identity = {"pod": os.environ.get("POD_NAME", socket.gethostname()), "node": os.environ.get("NODE_NAME", "")}
        self._options = options
        self._behaviour: str = options.behaviour if options.member in options.behaving else "good"
        self._journal = Journal(directory, options.member, identity)
        self._gang = Gang(directory, member=options.member, members=options.members, address=options.address)
        self._model = Regression(options.member)
        uid = os.environ.get("POD_UID", "")
        self._listener = CheckpointListener(
            requests=options.requests,
            answers=options.answers,
            pod_uid="00000000-0000-0000-0000-000000000000" if self._behaviour == "wrong-uid" else uid,
            exit_on_sigterm=not options.ignore_sigterm,
        )
        self._pace = threading.Event()
        self._answered = 0
        self._refused = 0
        self._step = 0

    def run(self) -> None:
        """Train to the end. After the loss of a peer, continue from the last common checkpoint."""
        devices = _open_devices(self._options.devices)
        self._journal.record("start", self._step, devices=len(devices), behaviour=self._behaviour)
        try:
            while self._step < self._options.steps:
                try:
                    self._resume()
                    while self._step < self._options.steps:
                        self._one_step()
                except PeerLostError as error:
                    self._journal.record("peer-lost", self._step, why=str(error))
            self._journal.record("done", self._step, weights=self._model.weights)
        except SystemExit as ending:
            self._journal.record("stop", self._step, code=ending.code)
            raise
        finally:
            self._gang.leave()

    def _resume(self) -> None:
        self._step = self._gang.meet(self._journal.steps())
        self._model = Regression(self._options.member)
        if self._step:
            self._model.weights = self._journal.load(self._step)
        self._journal.record("resume", self._step)

    def _one_step(self) -> None:
        started = time.monotonic()
        gradient, loss = self._model.gradient(self._step)
        asked = self._listener.requested() or 0
        seconds = self._listener.park_seconds() or 0.0
        mine = Part(step=self._step, gradient=gradient, loss=loss, request=asked, park_seconds=seconds)
        total = self._gang.reduce(mine)
        self._model.apply([part / self._options.members for part in total.gradient])
        self._step += 1
        self._journal.record("step", self._step, loss=round(total.loss / self._options.members, 6))
        self._listener.progress(self._step)
        if total.request > self._answered:
            self._answered = total.request
            self._answer(total.request, total.park_seconds)
        elif self._step % self._options.checkpoint_every == 0 or self._step == self._options.steps:
            self._journal.save(self._step, self._model.weights)
        self._pace.wait(max(0.0, self._options.step_seconds - (time.monotonic() - started)))

    def _answer(self, request: int, seconds: float) -> None:
        if self._behaviour == "silent":
            return
        if self._behaviour == "refuse" or (self._behaviour == "refuse-once" and not self._refused):
            self._refused += 1
            self._listener.refuse(request, "this trainer was told to refuse", self._options.retry_after)
            self._journal.record("refuse", self._step, request=request)
            return
        uri = self._journal.save(self._step, self._model.weights)
        step = self._step + 1 if self._behaviour == "wrong-step" else self._step
        answered = request - 1 if self._behaviour == "wrong-id" else request
        self._listener.acknowledge(answered, step, uri)
        self._journal.record("acknowledge", self._step, request=answered)
        match self._behaviour:
            case "no-park":
                self._claim_parked(answered, step, uri)
            case "unparked" | "wrong-id":
                pass
            case _:
                self._journal.record("park", self._step, request=request)
                why = self._listener.park(request, seconds or None)
                self._journal.record("unpark", self._step, request=request, why=why)

    def _claim_parked(self, request: int, step: int, uri: str) -> None:
        """The false statement of the negative control, written without the listener."""
        uid = os.environ.get("POD_UID", "")
        claim = {"requestId": request, "podUid": uid, "step": step, "uri": uri, "parked": True}
        temporary = self._options.answers / ".claim.new"
        temporary.write_text(json.dumps(claim), encoding="utf-8")
        temporary.replace(self._options.answers / "ack.json")


def _open_devices(at_least: int) -> list[int]:
    """Open the simulated GPUs that the device plugin mounted into this container, for the lifetime of the process."""
    found = [os.open(path, os.O_RDWR) for path in sorted(Path("/dev").glob("sim-gpu*"))]
    if len(found) < at_least:
        raise SystemExit(f"{len(found)} simulated GPU(s) in /dev, {at_least} required: does the pod request them?")
    return found


def parse(arguments: list[str]) -> argparse.Namespace:
    """Flags. A member's place in the gang is the Job controller's JOB_COMPLETION_INDEX by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--job", required=True, help="name of the job: its folder on the volume")
    add("--directory", type=Path, default=Path("/checkpoints"), help="volume that outlives the pods")
    add("--members", type=int, default=1)
    rank = int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
    add("--member", type=int, default=rank, help="default is JOB_COMPLETION_INDEX, as an Indexed Job sets it")
    add("--address", default=os.environ.get("POD_IP", ""), help="where rank 0 listens; default is POD_IP")
    add("--steps", type=int, default=1_000_000)
    add("--step-seconds", type=float, default=0.1, help="a step takes at least this long")
    add("--checkpoint-every", type=int, default=50, help="steps between checkpoints that nobody asked for")
    add("--devices", type=int, default=0, help="simulated GPUs that must be there")
    add("--behaviour", choices=BEHAVIOURS, default="good", help="; ".join(f"{k}: {v}" for k, v in BEHAVIOURS.items()))
    add("--no-park", dest="behaviour", action="store_const", const="no-park", help="same as --behaviour no-park")
    add("--behaving", type=int, nargs="*", help="members that behave so; default all")
    add("--retry-after", type=int, help="seconds after which a refusal may be asked again")
    add("--ignore-sigterm", action="store_true", help="live on until SIGKILL")
    add("--requests", type=Path, default=Path("/etc/gpu-upgrader"))
    add("--answers", type=Path, default=Path("/run/checkpoint"))
    options = parser.parse_args(arguments)
    if options.behaving is None:
        options.behaving = list(range(options.members))
    if options.members > 1 and not options.address:
        parser.error("members find rank 0 by its address: set POD_IP from the downward API, or --address")
    return options


def main() -> None:
    options = parse(sys.argv[1:])
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Trainer(options).run()


if __name__ == "__main__":
    main()
