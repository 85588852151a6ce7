"""Asked by HTTP: for pods that cannot have the two volumes, and programs that have an endpoint anyway.

    gpu-upgrader.io/checkpoint-method: http
    gpu-upgrader.io/checkpoint-endpoint: ":8080/checkpoint"

A thread takes the calls and lays them down as the files that the listener reads; the loop is that of plain.py, and as
there nothing is lost. While it evaluates it says 409 with Retry-After instead, since a checkpoint of that moment would
lose the evaluation; then all jobs of the same nodes train on, and it is asked again later.

Calls come through the API server. Whoever else reaches the port can park the job too: a NetworkPolicy is the place to
say who may. Run with `workload.py` and `plain.py` beside it.
"""

import json
import os
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from plain import EVERY, LAST, load, save, train_one_step
from workload import CheckpointListener

PORT = int(os.environ.get("PORT", "8080"))
EVALUATE_EVERY = int(os.environ.get("EVALUATE_EVERY", "500"))
EVALUATION_SECONDS = float(os.environ.get("EVALUATION_SECONDS", "20"))

FILES = Path(tempfile.mkdtemp())  # of this container: a pod that comes after a stop begins with none
EVALUATING = threading.Event()


def main() -> None:
    listener = CheckpointListener(requests=FILES, answers=FILES)
    server = ThreadingHTTPServer(("", PORT), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    step, weight = load()
    print(f"resume {step}", flush=True)
    while step < LAST:
        weight = train_one_step(weight)
        step += 1
        print(f"step {step}", flush=True)
        listener.progress(step)
        request = listener.requested()
        if request is not None:
            listener.acknowledge(request, step, save(step, weight))
            print(f"park {step}", flush=True)
            print(f"go on: {listener.park(request)}", flush=True)  # SIGTERM meanwhile ends the process with 143
        elif step % EVERY == 0:
            save(step, weight)
        if step % EVALUATE_EVERY == 0:
            evaluate()
    print(f"done {weight!r}", flush=True)


def evaluate() -> None:
    EVALUATING.set()
    print("evaluate", flush=True)
    time.sleep(EVALUATION_SECONDS)
    EVALUATING.clear()


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Asked. Again under the same number it begins nothing more."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self._answer(asked["requestId"])
        if answer is not None:
            self._say(200, answer)
        elif EVALUATING.is_set():
            self._say(409, {"refused": "in the middle of an evaluation"}, retry_after=int(EVALUATION_SECONDS) + 1)
        else:
            lay_down("park-seconds", asked["parkSeconds"])
            lay_down("checkpoint-request", asked["requestId"])
            self._say(202)

    def do_GET(self) -> None:
        """How far it is: the acknowledgement, or with /progress the latest step."""
        said = read("progress.json" if urlsplit(self.path).path.endswith("/progress") else "ack.json")
        self._say(200 if said is not None else 404, said)

    def do_DELETE(self) -> None:
        """Withdrawn: train on."""
        [number] = parse_qs(urlsplit(self.path).query)["requestId"]
        asked = FILES / "checkpoint-request"
        if asked.exists() and asked.read_text(encoding="utf-8") == number:
            lay_down("checkpoint-request", "")
        self._say(204)

    def _answer(self, request: int) -> dict[str, object] | None:
        said = read("ack.json")
        return said if said is not None and said["requestId"] == request and said["parked"] else None

    def _say(self, status: int, body: dict[str, object] | None = None, retry_after: int | None = None) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Content-Type", "application/json")
        if retry_after is not None:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: object) -> None:
        """No line for a request: where stdout and stderr share a file, it can land inside a line of the training."""


def lay_down(name: str, value: object) -> None:
    """Whole or not at all, as the kubelet does."""
    temporary = FILES / f".{name}.new"
    temporary.write_text(str(value), encoding="utf-8")
    temporary.replace(FILES / name)


def read(name: str) -> dict[str, object] | None:
    path = FILES / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


if __name__ == "__main__":
    main()
