"""What happens to nodes and jobs while a rollout is under way. What names nobody that is there does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from upgrader.simulate.fleets.fleet import Event, Happening
from upgrader.simulate.job import HAS_PODS, Life

if TYPE_CHECKING:
    from upgrader.simulate.job import Job
    from upgrader.simulate.node import Node
    from upgrader.simulate.world import World

NODE_EVENTS = frozenset(
    {
        Happening.NODE_NOT_READY,
        Happening.NODE_READY,
        Happening.NODE_CORDONED,
        Happening.NODE_LEAVES,
        Happening.NODE_JOINS,
        Happening.NODE_RENAMED,
        Happening.UPGRADE_FAILS,
    }
)
"""What happens to nodes; the rest happens to jobs."""


def apply_event(world: World, event: Event) -> None:
    """Let it happen."""
    if event.what is Happening.NODE_JOINS:
        like = world.nodes.get(event.value)
        if like is not None and event.subject not in world.nodes:
            world.join(msgspec.structs.replace(like.spec, name=event.subject))
    elif event.what in NODE_EVENTS:
        node = world.nodes.get(event.subject)
        if node is not None:
            _to_node(world, node, event)
    else:
        job = world.jobs.get(event.subject)
        if job is not None and job.life is not Life.OVER:
            _to_job(world, job, event)


def _to_node(world: World, node: Node, event: Event) -> None:
    match event.what:
        case Happening.NODE_NOT_READY:
            node.change(ready=False)
            for job in list(node.used):
                world.kill(world.jobs[job], lose=True)
        case Happening.NODE_READY:
            node.change(ready=True)
        case Happening.NODE_CORDONED:
            node.change(cordoned=True)
        case Happening.NODE_LEAVES:
            world.leave(node.name)
        case Happening.NODE_RENAMED:
            world.leave(node.name)
            world.join(msgspec.structs.replace(node.spec, name=event.value))
        case _:
            world.failing[node.name] = int(event.value or 1)
    world.tell(node.name)


def _to_job(world: World, job: Job, event: Event) -> None:
    match event.what:
        case Happening.JOB_ENDS:
            world.finish(job)
        case Happening.JOB_GROWS:
            if event.value in world.nodes and job.life in HAS_PODS:
                world.grow(job, event.value)
        case Happening.JOB_RESUMED:
            world.resume_by_user(job)
        case Happening.UNEQUAL_STEPS:
            job.unequal = True
        case Happening.SLOW_CHECKPOINT:
            job.slow = int(event.value)
        case Happening.PDB_BLOCKS:
            job.pdb = event.value or "budget"
        case _:
            job.pdb = ""
    world.touch(job)
