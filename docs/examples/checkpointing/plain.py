"""One process, one pod: asked between two steps, parked, stopped with 143, resumed from its checkpoint.

Loses nothing: the checkpoint that is acknowledged is of the step that was just done, and parking takes no other. It
costs the rest of one step, one checkpoint, and the time parked. A kill without asking (a node that fails) loses the
steps since the last checkpoint, at most EVERY.

Run with `workload.py` beside it. The training is a stand-in: replace `train_one_step`, `save` and `load`.
"""

import json
import os
import time
from pathlib import Path

from workload import ANSWER_DIRECTORY, REQUEST_DIRECTORY, CheckpointListener

CHECKPOINTS = Path(os.environ.get("CHECKPOINTS", "/checkpoints"))  # a volume that outlives the pod
LAST = int(os.environ.get("STEPS", "1000"))
EVERY = int(os.environ.get("CHECKPOINT_EVERY", "100"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.1"))


def main() -> None:
    listener = CheckpointListener(
        requests=os.environ.get("REQUESTS", REQUEST_DIRECTORY), answers=os.environ.get("ANSWERS", ANSWER_DIRECTORY)
    )
    step, weight = load()
    print(f"resume {step}", flush=True)
    while step < LAST:
        weight = train_one_step(weight)
        step += 1
        print(f"step {step}", flush=True)
        listener.progress(step)  # after a restart this proves that the job came past the acknowledged step
        request = listener.requested()
        if request is not None:
            listener.acknowledge(request, step, save(step, weight))
            print(f"park {step}", flush=True)
            print(f"go on: {listener.park(request)}", flush=True)  # SIGTERM meanwhile ends the process with 143
        elif step % EVERY == 0:
            save(step, weight)
    print(f"done {weight!r}", flush=True)


def train_one_step(weight: float) -> float:
    time.sleep(STEP_SECONDS)
    return weight - 0.01 * (weight - 3.0)


def save(step: int, weight: float) -> str:
    """Return only when it is on disk, whole, under its own name: a file that is half there must never be found."""
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    path = CHECKPOINTS / f"step-{step:08d}.json"
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"step": step, "weight": weight}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(CHECKPOINTS, os.O_RDONLY)
    os.fsync(folder)  # the new name too
    os.close(folder)
    return str(path)


def load() -> tuple[int, float]:
    """The latest checkpoint; the beginning where there is none."""
    latest = max(CHECKPOINTS.glob("step-*.json"), default=None)
    if latest is None:
        return 0, 0.0
    saved = json.loads(latest.read_text(encoding="utf-8"))
    return saved["step"], saved["weight"]


if __name__ == "__main__":
    main()
