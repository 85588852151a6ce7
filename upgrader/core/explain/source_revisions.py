"""Source revisions of a rollout: for each revision that nodes carry now, its differences to the target."""

import shlex
from collections.abc import Iterable, Mapping

from msgspec import Struct

from upgrader.core.model.fleet import NodeFacts, Target
from upgrader.core.model.validation import AllReduce, Diagnostics

NOT_MANAGED = "not managed"
_LOOK = "no workload"
NO_PROGRAM = "no program"


class Change(Struct, frozen=True, kw_only=True):
    """One component that a node upgrade changes; `before` is empty if it is unknown."""

    what: str
    before: str
    after: str


class Origin(Struct, frozen=True, kw_only=True):
    """Nodes that carry one revision now; it is empty if they carry none, and so are unknown changes."""

    revision: str
    nodes: int
    changes: tuple[Change, ...] = ()


def revision_changes(before: Target, after: Target) -> tuple[Change, ...]:
    """Differences between two revisions, in words for users."""
    pairs = (
        ("driver", before.driver, after.driver),
        ("vendor", before.operands, after.operands),
        ("runtime hook", before.runtime_image or NOT_MANAGED, after.runtime_image or NOT_MANAGED),
        ("device plugin", before.plugin_image or NOT_MANAGED, after.plugin_image or NOT_MANAGED),
        ("sharing", _show_sharing(before), _show_sharing(after)),
        ("validation", before.workload_image or _LOOK, after.workload_image or _LOOK),
        ("all-reduce", _show_program(before.all_reduce), _show_program(after.all_reduce)),
        ("diagnostics", _show_program(before.diagnostics), _show_program(after.diagnostics)),
        ("resource", before.resource_name, after.resource_name),
        ("kernel", before.kernel or NOT_MANAGED, after.kernel or NOT_MANAGED),
        ("kubelet", before.kubelet_version or NOT_MANAGED, after.kubelet_version or NOT_MANAGED),
        ("kubelet settings", _show_settings(before.kubelet_settings), _show_settings(after.kubelet_settings)),
        ("module parameters", _show_settings(before.module_parameters), _show_settings(after.module_parameters)),
    )
    return tuple(Change(what=what, before=old, after=new) for what, old, new in pairs if old != new)


def _show_program(program: AllReduce | Diagnostics | None) -> str:
    if program is None:
        return NO_PROGRAM
    bounds = [f"tolerance {program.tolerance_percent} %"] if isinstance(program, AllReduce) else []
    if isinstance(program, AllReduce) and program.min_bus_bandwidth is not None:
        bounds.append(f"minimum {program.min_bus_bandwidth:g} GB/s")
    return ", ".join((f"{program.image}: {shlex.join(program.command)}", *bounds))


def _show_settings(settings: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings) or NOT_MANAGED


def _show_sharing(target: Target) -> str:
    shares = f"{target.time_slices} time slices" if target.time_slices else "none"
    if target.mps_replicas:
        within = f" in RuntimeClass {target.mps_runtime}" if target.mps_runtime else ""
        shares = f"{target.mps_replicas} replicas by MPS{within}"
    return f"{shares}, MIG {target.mig_strategy}" if target.mig_strategy else shares


def find_origins(nodes: Iterable[NodeFacts], known: Mapping[str, Target], target: Target) -> tuple[Origin, ...]:
    """The revisions of these nodes, most nodes first. `known`: the target of each revision that is still kept."""
    count: dict[str, int] = {}
    for node in nodes:
        count[node.revision] = count.get(node.revision, 0) + 1
    return tuple(
        Origin(
            revision=revision,
            nodes=number,
            changes=revision_changes(known[revision], target) if revision in known else (),
        )
        for revision, number in sorted(count.items(), key=lambda item: (-item[1], item[0]))
    )
