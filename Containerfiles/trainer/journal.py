"""The data of a member on a persistent volume: a log of every step, and its shards of the checkpoints.

    <directory>/member-<n>.jsonl              one JSON object a line: time, event, step, member, pod, node ...
    <directory>/checkpoints/member-<n>/<step>.json

Events: `start` (a process started), `resume` (the step to continue from, or 0), `step`, `checkpoint`, `acknowledge`,
`refuse`, `park`, `unpark`, `peer-lost`, `stop` (ended by a signal), `done`.
"""

import json
import os
import time
from pathlib import Path

KEPT = 3
"""Shards kept per member: members may be one checkpoint apart when one of them dies while saving."""


class Journal:
    """The log and the shards of one member."""

    def __init__(self, directory: Path, member: int, identity: dict[str, str]) -> None:
        self._shards = directory / "checkpoints" / f"member-{member}"
        self._shards.mkdir(parents=True, exist_ok=True)
        self._member = member
        self._identity = identity
        path = directory / f"member-{member}.jsonl"
        self._log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def record(self, event: str, step: int, **more: object) -> None:
        """Write one line, immediately and atomically."""
        line = {"time": round(time.time(), 4), "event": event, "step": step, "member": self._member}
        text = json.dumps({**line, **self._identity, **more}) + "\n"
        os.write(self._log, text.encode())
        if event != "step":
            print(text, end="", flush=True)

    def save(self, step: int, weights: list[float]) -> str:
        """Write a shard atomically with respect to power cuts, and delete older ones. Returns its path."""
        target = self._shards / f"{step:08d}.json"
        temporary = self._shards / f".{step:08d}.new"
        with temporary.open("w", encoding="utf-8") as file:
            json.dump({"step": step, "weights": weights}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        folder = os.open(self._shards, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        for old in self.steps()[:-KEPT]:
            (self._shards / f"{old:08d}.json").unlink()
        self.record("checkpoint", step)
        return str(target)

    def steps(self) -> list[int]:
        """Steps of the complete shards, ascending."""
        return sorted(int(path.stem) for path in self._shards.glob("[0-9]*.json"))

    def load(self, step: int) -> list[float]:
        """The weights at `step`. Later shards are deleted, since only a part of the gang has saved them."""
        for later in (one for one in self.steps() if one > step):
            (self._shards / f"{later:08d}.json").unlink()
        shard = json.loads((self._shards / f"{step:08d}.json").read_text(encoding="utf-8"))
        return [float(weight) for weight in shard["weights"]]
