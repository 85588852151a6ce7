"""Events of nodes and jobs during a rollout. An event whose subject does not exist has no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from upgrader.simulate.fleets.fleet import EventKind, FleetEvent
from upgrader.simulate.job import HAS_PODS, JobState

if TYPE_CHECKING:
    from upgrader.simulate.job import SimulatedJob
    from upgrader.simulate.node import SimulatedNode
    from upgrader.simulate.world import SimulatedCluster

NODE_EVENTS = frozenset(
    {
        EventKind.NODE_NOT_READY,
        EventKind.NODE_READY,
        EventKind.NODE_CORDONED,
        EventKind.NODE_LEAVES,
        EventKind.NODE_JOINS,
        EventKind.NODE_RENAMED,
        EventKind.UPGRADE_FAILS,
    }
)
"""Events of nodes; the others are events of jobs."""


def apply_event(world: SimulatedCluster, event: FleetEvent) -> None:
    """Apply an event to the cluster."""
    if event.what is EventKind.NODE_JOINS:
        template = world.nodes.get(event.value)
        if template is not None and event.subject not in world.nodes:
            world.add_node(msgspec.structs.replace(template.spec, name=event.subject))
    elif event.what in NODE_EVENTS:
        node = world.nodes.get(event.subject)
        if node is not None:
            _apply_to_node(world, node, event)
    else:
        job = world.jobs.get(event.subject)
        if job is not None and job.state is not JobState.OVER:
            _apply_to_job(world, job, event)


def _apply_to_node(world: SimulatedCluster, node: SimulatedNode, event: FleetEvent) -> None:
    match event.what:
        case EventKind.NODE_NOT_READY:
            node.set_fields(ready=False)
            for job in list(node.used):
                world.kill_job(world.jobs[job], lose=True)
        case EventKind.NODE_READY:
            node.set_fields(ready=True)
        case EventKind.NODE_CORDONED:
            node.set_fields(cordoned=True)
        case EventKind.NODE_LEAVES:
            world.remove_node(node.name)
        case EventKind.NODE_RENAMED:
            world.remove_node(node.name)
            world.add_node(msgspec.structs.replace(node.spec, name=event.value))
        case _:
            world.failing[node.name] = int(event.value or 1)
    world.notify_change(node.name)


def _apply_to_job(world: SimulatedCluster, job: SimulatedJob, event: FleetEvent) -> None:
    match event.what:
        case EventKind.JOB_ENDS:
            world.finish_job(job)
        case EventKind.JOB_GROWS:
            if event.value in world.nodes and job.state in HAS_PODS:
                world.add_member(job, event.value)
        case EventKind.JOB_RESUMED:
            world.resume_by_user(job)
        case EventKind.UNEQUAL_STEPS:
            job.unequal = True
        case EventKind.SLOW_CHECKPOINT:
            job.slow = int(event.value)
        case EventKind.PDB_BLOCKS:
            job.pdb = event.value or "budget"
        case _:
            job.pdb = ""
    world.handle_change(job)
