"""Several processes in several pods, started by torchrun; they agree by MAX, so that all save at the same step.

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29400 torch_loop.py

Loses nothing: every process saves its part of one and the same step, nobody acknowledges before all parts are on disk,
and nobody takes a step while any other is parked. A kill without asking loses the steps since the last checkpoint, at
most EVERY. What it costs: one number through an all-reduce per step (ask every tenth step if that matters to you).

Run with `workload.py` beside it. The training is a stand-in: replace `Model`. `train` knows only a function that agrees
by MAX; `main` makes one from torch.distributed, and the tests another without it.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from workload import ANSWER_DIRECTORY, REQUEST_DIRECTORY, CheckpointListener

CHECKPOINTS = Path(os.environ.get("CHECKPOINTS", "/checkpoints"))  # the same volume for all pods, outliving them
LAST = int(os.environ.get("STEPS", "1000"))
EVERY = int(os.environ.get("CHECKPOINT_EVERY", "100"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.1"))
PARKED_SECONDS = 0.2  # how often parked processes tell each other that they are
LOST_SECONDS = 5.0  # how long a process whose peer is gone waits for its own SIGTERM

Agree = Callable[[int], int]
"""The highest of the numbers that all processes of all pods put in; it blocks until each has come (all-reduce MAX)."""


def train(rank: int, local_rank: int, agree: Agree) -> None:
    """Train to the end. Local rank 0 answers for its pod; the others do as it says, by `agree`."""
    listener = answering() if local_rank == 0 else None
    model, answered = Model(rank), 0
    step = model.load(-agree(-max(model.steps(), default=0)))  # the latest that everybody has: MIN is -MAX of negatives
    tell(rank, "resume", step)
    while step < LAST:
        model.train_one_step()
        step += 1
        tell(rank, "step", step)
        if listener is not None:
            listener.progress(step)
        request = agree((listener.requested() if listener is not None else None) or 0)
        if request > answered:
            answered = request
            uri = model.save(step)
            agree(0)  # as a barrier: all parts of this step are on disk
            tell(rank, "park", step)
            park(agree, listener, request, step, uri)
            tell(rank, "go on", step)
        elif step % EVERY == 0:
            model.save(step)
    tell(rank, "done", step, repr(model.weight))


def park(agree: Agree, listener: CheckpointListener | None, request: int, step: int, uri: str) -> None:
    """Until no pod is parked any more. They keep agreeing meanwhile: one long wait in a collective would hit its
    time-out (10 minutes with NCCL, 30 with gloo), and a pod whose request is withdrawn first must wait for the others.
    """
    parked = None
    if listener is not None:
        listener.acknowledge(request, step, uri)
        parked = threading.Thread(target=listener.park, args=(request,), daemon=True)
        parked.start()
    while agree(parked is not None and parked.is_alive()):
        time.sleep(PARKED_SECONDS)


class Model:
    """Stand-in for a sharded model: each process has a part, and saves it on its own."""

    def __init__(self, rank: int) -> None:
        self.weight = float(rank)
        self._folder = CHECKPOINTS / f"rank-{rank}"

    def train_one_step(self) -> None:
        time.sleep(STEP_SECONDS)
        self.weight -= 0.01 * (self.weight - 3.0)

    def save(self, step: int) -> str:
        """Return only when it is on disk, whole, under its own name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / "new"
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(self.weight, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._folder / f"step-{step:08d}.json")
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)  # the new name too
        os.close(folder)
        return f"{CHECKPOINTS}/*/step-{step:08d}.json"

    def steps(self) -> list[int]:
        """Steps that can be loaded."""
        return sorted(int(path.stem.removeprefix("step-")) for path in self._folder.glob("step-*.json"))

    def load(self, step: int) -> int:
        if step:
            self.weight = json.loads((self._folder / f"step-{step:08d}.json").read_text(encoding="utf-8"))
        return step


def stoppable(run: Callable[[], None]) -> None:
    """All are stopped at once, but not at the same moment: a process whose peer is gone waits for its own SIGTERM,
    which ends it with 143, and only then calls it an error.
    """
    try:
        run()
    except RuntimeError:
        time.sleep(LOST_SECONDS)
        raise


def answering() -> CheckpointListener:
    return CheckpointListener(
        requests=os.environ.get("REQUESTS", REQUEST_DIRECTORY), answers=os.environ.get("ANSWERS", ANSWER_DIRECTORY)
    )


def tell(rank: int, *words: object) -> None:
    print(f"rank {rank}:", *words, flush=True)


def main() -> None:
    import torch  # noqa: PLC0415 - the tests of `train` need none
    import torch.distributed as dist  # noqa: PLC0415

    def agree(number: int) -> int:
        tensor = torch.tensor([number], dtype=torch.int64)  # device="cuda" where the group is NCCL's
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return int(tensor.item())

    dist.init_process_group("gloo")  # beside NCCL: new_group(backend="gloo"), so that asking touches no GPU
    stoppable(lambda: train(dist.get_rank(), int(os.environ["LOCAL_RANK"]), agree))


if __name__ == "__main__":
    main()
