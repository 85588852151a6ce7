"""A program: docs/examples/checkpointing/torch_loop.py as one process that agrees through a hub, without torch."""

import os

import torch_loop

from tests.support.agreement import connected

torch_loop.stoppable(lambda: torch_loop.train(int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]), connected()))
