"""The baselines of comparisons: node upgraders without knowledge of jobs.

`kill` is modelled on NVIDIA's upgrade library: nodes in the order of the API server's list, at most a percentage of
nodes (rounded up) at the same time, pods deleted after the cordon regardless of their gang. A gang that loses a member
is stopped as a whole and resumes from its last periodic checkpoint. `wait` cordons first and then waits for the natural
end of the jobs without a timeout, which is the library's default (with one node at a time; here as many as the budget
allows). Its states are node labels, written by one loop, which waits a second after each write until its cache shows
it; a node has eight of them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from upgrader.simulate import stack
from upgrader.simulate.world import SimulatedCluster

_PERCENT = re.compile(r"^(\d{1,3})%$")

TO_CORDON, TO_DRAIN, TO_RESTART, TO_DONE = 2, 1, 1, 3
"""Labels that are written to a node before each action; another one, before all, marks it for the upgrade."""


def allowed_nodes(max_unavailable: int | str, nodes: int, gpus: int) -> int:
    """Nodes at the same time: a percentage of the nodes, rounded up; a number of GPUs as nodes, rounded up."""
    if isinstance(max_unavailable, int):
        return max(1, -(-max_unavailable * nodes // max(1, gpus)))
    percentage = _PERCENT.match(max_unavailable)
    if percentage is None:
        raise AssertionError("core.constraints.budget has rejected this value")
    return max(1, -(-nodes * int(percentage[1]) // 100))


@dataclass(kw_only=True)
class Slot:
    """A node that is being upgraded."""

    node: str
    uid: str
    draining: bool = False


class BaselineUpgrader:
    """Upgrades node by node, a limited number at the same time; `kill`: whether jobs are ended or waited for."""

    def __init__(
        self, world: SimulatedCluster, max_unavailable: int | str, *, kill: bool, write_seconds: int = 1
    ) -> None:
        self.world, self.kill, self.write_seconds = world, kill, write_seconds
        sizes = [node.spec.gpus for node in world.nodes.values()]
        self.width = allowed_nodes(max_unavailable, len(sizes), sum(sizes))
        self.done: set[str] = set()
        self.finished_at: int | None = None
        self._slots: dict[str, Slot] = {}
        self._idle: dict[str, tuple[int, int]] = {}
        self._busy_until = write_seconds * len(sizes)
        self._is_scheduled = False
        world.changed.append(lambda _: self._schedule_step())
        world.queue.schedule_at(self._busy_until, self._schedule_step)

    def _schedule_step(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.world.queue.schedule_at(
                max(self.world.now + 1, self.write_seconds * len(self.world.nodes)), self._step
            )

    def _step(self) -> None:
        self._is_scheduled = False
        for slot in list(self._slots.values()):
            self._finish_drain(slot)
        for name in sorted(self.world.nodes):
            if len(self._slots) >= self.width:
                break
            if name not in self._slots and name not in self.done and self.world.nodes[name].ready:
                slot = Slot(node=name, uid=self.world.nodes[name].uid)
                self._slots[name] = slot
                self._write_labels(slot, TO_CORDON, self._cordon_node)
        if not self._slots and self.done >= self.world.nodes.keys() and self.finished_at is None:
            self.finished_at = self.world.now

    def _write_labels(self, slot: Slot, labels: int, act: Callable[[Slot], None]) -> None:
        """Write one label after the other, behind waiting writes for other nodes; then run `act`."""
        if not labels:
            if self._exists(slot):
                act(slot)
            return
        self._busy_until = max(self._busy_until, self.world.now) + self.write_seconds
        self.world.queue.schedule_at(self._busy_until, partial(self._write_labels, slot, labels - 1, act))

    def _exists(self, slot: Slot) -> bool:
        node = self.world.nodes.get(slot.node)
        if node is None or node.uid != slot.uid:
            self._slots.pop(slot.node, None)
            self._schedule_step()
            return False
        return True

    def _cordon_node(self, slot: Slot) -> None:
        self.world.nodes[slot.node].set_fields(cordoned=True)
        self._add_idle_time(slot.node)
        self._write_labels(slot, TO_DRAIN, self._drain_node)

    def _drain_node(self, slot: Slot) -> None:
        slot.draining = True
        if self.kill:
            for job in list(self.world.nodes[slot.node].used):
                self.world.kill_job(self.world.jobs[job], lose=True)
        self._finish_drain(slot)

    def _finish_drain(self, slot: Slot) -> None:
        if not slot.draining or not self._exists(slot):
            return
        self._add_idle_time(slot.node)
        if self.world.nodes[slot.node].used:
            return
        slot.draining = False
        self._idle.pop(slot.node, None)
        self.world.ledger.start_outage(slot.node, self.world.now)
        self._write_labels(slot, TO_RESTART, self._upgrade_node)

    def _upgrade_node(self, slot: Slot) -> None:
        self.world.nodes[slot.node].set_fields(operands="off", driver_key="none", revision="")
        seconds = self.world.sampler.draw_upgrade(slot.node)
        self.world.queue.schedule_after(seconds, partial(self._write_labels, slot, TO_DONE, self._release_node))

    def _release_node(self, slot: Slot) -> None:
        node = self.world.nodes[slot.node]
        key = stack.make_image(stack.NEW, node.spec.kernel).key
        node.set_fields(operands="on", driver_key=key, revision=stack.make_target(stack.NEW).revision, cordoned=False)
        self.world.ledger.end_outage(slot.node, self.world.now)
        self._slots.pop(slot.node, None)
        self.done.add(slot.node)
        self.world.notify_change(slot.node)

    def _add_idle_time(self, name: str) -> None:
        """Add the time of free GPUs on a cordoned node while jobs still run on it."""
        now = self.world.now
        since, free = self._idle.get(name, (now, 0))
        self.world.ledger.idle += (now - since) * free
        self._idle[name] = now, self.world.nodes[name].free
