"""What is compared with: how node upgraders that know nothing of jobs go about it.

`kill` is modelled on NVIDIA's upgrade library: nodes in the order in which the API server lists them, at most so many
at once as a percentage of nodes rounded up, pods deleted after the cordon whatever they are part of. A gang whose
member goes is stopped whole and comes back from the last checkpoint that it made by itself. `wait` cordons first and
then waits for the jobs' natural end without a time-out, which is the library's default (with one node at a time; here
with as many as the budget allows). Its states are node labels, written by one loop, each write followed by a wait of a
second until its own cache shows it; a node has eight of them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from upgrader.simulate import stack
from upgrader.simulate.world import World

_PERCENT = re.compile(r"^(\d{1,3})%$")

TO_CORDON, TO_DRAIN, TO_RESTART, TO_DONE = 2, 1, 1, 3
"""Labels that a node is given before each act; one more says before all that it must be upgraded."""


def allowed_nodes(max_unavailable: int | str, nodes: int, gpus: int) -> int:
    """Nodes at once: a percentage of the nodes, rounded up; a number of GPUs as so many nodes, rounded up."""
    if isinstance(max_unavailable, int):
        return max(1, -(-max_unavailable * nodes // max(1, gpus)))
    found = _PERCENT.match(max_unavailable)
    if found is None:
        raise AssertionError("core.constraints.budget has refused it before")
    return max(1, -(-nodes * int(found[1]) // 100))


@dataclass(kw_only=True)
class Slot:
    """A node under way."""

    node: str
    uid: str
    draining: bool = False


class Incumbent:
    """Node by node, so many at once; `kill`: whether jobs are ended or waited for."""

    def __init__(self, world: World, max_unavailable: int | str, *, kill: bool, write_seconds: int = 1) -> None:
        self.world, self.kill, self.write_seconds = world, kill, write_seconds
        sizes = [node.spec.gpus for node in world.nodes.values()]
        self.width = allowed_nodes(max_unavailable, len(sizes), sum(sizes))
        self.done: set[str] = set()
        self.finished_at: int | None = None
        self._slots: dict[str, Slot] = {}
        self._idle: dict[str, tuple[int, int]] = {}
        self._busy_until = write_seconds * len(sizes)
        self._due = False
        world.changed.append(lambda _: self._look())
        world.agenda.at(self._busy_until, self._look)

    def _look(self) -> None:
        if not self._due:
            self._due = True
            self.world.agenda.at(max(self.world.now + 1, self.write_seconds * len(self.world.nodes)), self._step)

    def _step(self) -> None:
        self._due = False
        for slot in list(self._slots.values()):
            self._drained(slot)
        for name in sorted(self.world.nodes):
            if len(self._slots) >= self.width:
                break
            if name not in self._slots and name not in self.done and self.world.nodes[name].ready:
                slot = Slot(node=name, uid=self.world.nodes[name].uid)
                self._slots[name] = slot
                self._write(slot, TO_CORDON, self._cordon)
        if not self._slots and self.done >= self.world.nodes.keys() and self.finished_at is None:
            self.finished_at = self.world.now

    def _write(self, slot: Slot, labels: int, act: Callable[[Slot], None]) -> None:
        """The loop writes one label after the other, this node's behind those that wait already; then `act`."""
        if not labels:
            if self._there(slot):
                act(slot)
            return
        self._busy_until = max(self._busy_until, self.world.now) + self.write_seconds
        self.world.agenda.at(self._busy_until, partial(self._write, slot, labels - 1, act))

    def _there(self, slot: Slot) -> bool:
        node = self.world.nodes.get(slot.node)
        if node is None or node.uid != slot.uid:
            self._slots.pop(slot.node, None)
            self._look()
            return False
        return True

    def _cordon(self, slot: Slot) -> None:
        self.world.nodes[slot.node].change(cordoned=True)
        self._count(slot.node)
        self._write(slot, TO_DRAIN, self._drain)

    def _drain(self, slot: Slot) -> None:
        slot.draining = True
        if self.kill:
            for job in list(self.world.nodes[slot.node].used):
                self.world.kill(self.world.jobs[job], lose=True)
        self._drained(slot)

    def _drained(self, slot: Slot) -> None:
        if not slot.draining or not self._there(slot):
            return
        self._count(slot.node)
        if self.world.nodes[slot.node].used:
            return
        slot.draining = False
        self._idle.pop(slot.node, None)
        self.world.ledger.close(slot.node, self.world.now)
        self._write(slot, TO_RESTART, self._upgrade)

    def _upgrade(self, slot: Slot) -> None:
        self.world.nodes[slot.node].change(operands="off", driver_key="none", revision="")
        seconds = self.world.chances.upgrade(slot.node)
        self.world.agenda.after(seconds, partial(self._write, slot, TO_DONE, self._release))

    def _release(self, slot: Slot) -> None:
        node = self.world.nodes[slot.node]
        key = stack.make_image(stack.NEW, node.spec.kernel).key
        node.change(operands="on", driver_key=key, revision=stack.make_target(stack.NEW).revision, cordoned=False)
        self.world.ledger.release(slot.node, self.world.now)
        self._slots.pop(slot.node, None)
        self.done.add(slot.node)
        self.world.tell(slot.node)

    def _count(self, name: str) -> None:
        """GPUs that nobody may use while others on a cordoned node go on."""
        now = self.world.now
        since, free = self._idle.get(name, (now, 0))
        self.world.ledger.idle += (now - since) * free
        self._idle[name] = now, self.world.nodes[name].free
