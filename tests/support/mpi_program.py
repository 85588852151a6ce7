"""A program: stands for an MPI binary that knows nothing of checkpoint requests.

When rank 0 gets SIGUSR1 all ranks save the step that they have just done, and rank 0 leaves `step-N.done`. It goes on
training then. It begins at the newest marker.
"""

import os
import signal
import time
from pathlib import Path

from tests.support.agreement import connected

CHECKPOINTS = Path(os.environ["CHECKPOINTS"])
RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])


def main() -> None:
    asked: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: asked.append(number))
    agree = connected()
    done = [int(path.stem.removeprefix("step-")) for path in CHECKPOINTS.glob("step-*.done")]
    step = agree(max(done, default=0))
    print(f"resume {step}", flush=True)
    while step < int(os.environ["STEPS"]):
        time.sleep(float(os.environ["STEP_SECONDS"]))
        step += 1
        print(f"step {step}", flush=True)
        if agree(len(asked)):
            asked.clear()
            (CHECKPOINTS / f"rank-{RANK}-step-{step:08d}").write_text("all that this rank knows")
            agree(0)
            if RANK == 0:
                (CHECKPOINTS / f"step-{step:08d}.done").touch()
    print("done", flush=True)


main()
