"""Levels of the validation of a node, and the programs of the levels beyond the checks of devices. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, field

from upgrader.core.fields import CommandWords, ImageReference, Resource, field_doc

if TYPE_CHECKING:
    from upgrader.core.model.fleet import Target

GPUS_VARIABLE = "GPUS"
"""Environment variable of the programs: number of GPUs of the node."""


class ValidationLevel(StrEnum):
    """How thoroughly a node is validated before its release; each level includes those before it."""

    DEVICES = "Devices"
    ALL_REDUCE = "AllReduce"
    DIAGNOSTICS = "Diagnostics"

    def includes(self, level: "ValidationLevel") -> bool:
        """Whether a validation of this level has the checks of another one."""
        order = list(ValidationLevel)
        return order.index(level) <= order.index(self)


class AllReduce(Resource, frozen=True, kw_only=True, omit_defaults=False):
    """The program that measures an all-reduce over all GPUs of a node, with the output of NVIDIA's nccl-tests."""

    image: Annotated[
        ImageReference,
        field_doc("Image with NVIDIA's nccl-tests, or with another program that prints the same report, and /bin/sh."),
    ]
    command: Annotated[
        CommandWords,
        field_doc(
            "Command that runs the all-reduce once over all GPUs of the node. `$(GPUS)` is replaced by their number. "
            "Defaults to `all_reduce_perf -b 1G -e 8G -f 2 -g $(GPUS)`."
        ),
    ] = field(default_factory=lambda: ["all_reduce_perf", "-b", "1G", "-e", "8G", "-f", "2", "-g", "$(GPUS)"])
    min_bus_bandwidth: Annotated[
        Annotated[float, Meta(gt=0, le=1_000_000)] | None,
        field_doc(
            "Minimum average bus bandwidth, in GB/s (10^9 bytes). If unset, a node is only compared with the highest "
            "bandwidth that was measured on it before."
        ),
    ] = None
    tolerance_percent: Annotated[
        int,
        Meta(
            description="How far, in percent, the bus bandwidth may be below the highest one that was measured on the "
            "node before with the same image, command and number of GPUs. Defaults to 5.",
            ge=0,
            le=90,
        ),
    ] = 5


class Diagnostics(Resource, frozen=True, kw_only=True, omit_defaults=False):
    """The program that runs NVIDIA's diagnostics of GPUs (DCGM)."""

    image: Annotated[ImageReference, field_doc("Image with NVIDIA's DCGM (version 3 or 4) and /bin/sh.")]
    command: Annotated[
        CommandWords,
        field_doc(
            'Command that prints the report of `dcgmi diag -j`. Defaults to `/bin/sh -c "nv-hostengine >&2 && exec '
            "dcgmi diag -r 3 -j\"`: the third level of NVIDIA's diagnostics, which takes ten to twenty minutes."
        ),
    ] = field(default_factory=lambda: ["/bin/sh", "-c", "nv-hostengine >&2 && exec dcgmi diag -r 3 -j"])


def find_missing_programs(target: "Target", levels: Mapping[str, ValidationLevel]) -> tuple[str, ...]:
    """What a stack lacks for the levels that a plan requests, as sentences. `levels`: by the field that requests it."""
    programs = (
        (ValidationLevel.ALL_REDUCE, "allReduce", target.all_reduce),
        (ValidationLevel.DIAGNOSTICS, "diagnostics", target.diagnostics),
    )
    return tuple(
        f"{requested} {level.value} requires spec.validation.{name} of stack {target.stack}"
        for requested, level in levels.items()
        for needed, name, program in programs
        if level.includes(needed) and program is None
    )
