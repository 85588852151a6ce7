"""The plan file: a saved forecast that a user has read and agreed to, and the checks that it still holds."""

import math
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.errors import ConfigurationError, UnreadableError
from upgrader.core.explain.source_revisions import Origin
from upgrader.core.forecast.forecast import Forecast
from upgrader.core.model.fleet import ImageFacts
from upgrader.core.model.strategy import StrategyFacts

FORMAT = "gpu-upgrader.io/forecast.v1"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of the agreement: a later forecast may differ within them."""

    max_interruptions: int
    gangs: tuple[str, ...]  # gangs that may be stopped
    max_lost_gpu_hours: float | None = None  # None: files of older releases, without that limit
    placement_unguaranteed: bool = False


class SavedForecast(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file that `upgrader plan -o` writes and `upgrader apply` reads."""

    cluster: str  # uid of the namespace kube-system
    stack: str
    stack_uid: str
    stack_generation: int
    spec: dict[str, Any]  # the spec that the stack is to have, with defaults
    revision: str
    created_at: datetime
    strategy: StrategyFacts
    limits: Limits
    images: tuple[ImageFacts, ...]  # images that the upgrades of this forecast would use
    forecast: Forecast
    origins: tuple[Origin, ...] = ()  # source revisions of the nodes, and their differences to the target
    steering: bool = True  # whether restarted gangs can be steered to upgraded nodes in this cluster
    format: str = FORMAT


class StaleReason(StrEnum):
    """Why a saved forecast no longer holds, as one word."""

    OTHER_CLUSTER = "OtherCluster"
    OTHER_STACK = "OtherStack"
    STACK_CHANGED = "StackChanged"
    OTHER_REVISION = "OtherRevision"
    IMAGE_GONE = "ImageGone"
    MORE_INTERRUPTIONS = "MoreInterruptions"
    OTHER_GANG = "OtherGang"
    MORE_LOSS = "MoreLoss"


class Stale(Struct, frozen=True, kw_only=True):
    """One reason, and its sentence."""

    reason: StaleReason
    message: str


def limits_of(forecast: Forecast, strategy: StrategyFacts) -> Limits:
    """The limits that an agreement to a forecast implies."""
    return Limits(
        max_interruptions=forecast.summary.interruptions,
        gangs=tuple(sorted(forecast.interrupted)),
        max_lost_gpu_hours=rounded_up(forecast.prediction.lost_gpu_hours),
        placement_unguaranteed=strategy.placement_unguaranteed,
    )


def consented_loss(gpu_hours: float) -> float:
    """The most GPU-hours that a plan may lose, from the loss that its forecast expects.

    Half as much again and one, since every other rollout exceeds an expectation: beyond that a new approval is needed.
    """
    return rounded_up(gpu_hours * 1.5 + 1.0)


def rounded_up(gpu_hours: float) -> float:
    """Rounded up to a tenth: the number that a user reads is the number that they agree to."""
    return math.ceil(round(gpu_hours * 10, 6)) / 10


def check_saved(saved: SavedForecast, fresh: SavedForecast) -> tuple[Stale, ...]:
    """Every reason why a saved forecast no longer holds; none: it may be applied.

    `fresh` is a new forecast with the strategy of the saved one; its `images` are all that are Ready now. A job that
    ended, a node that left and a changed blocker do not make it stale: the plan does the same, or less.
    """
    stale = _check_identity(saved, fresh)
    if stale:
        return stale  # further comparisons would have no meaning
    return (*_check_images(saved, fresh), *_check_limits(saved, fresh))


def encode_forecast(saved: SavedForecast) -> bytes:
    """JSON for a file: indented, ends with a line feed, the same bytes for the same forecast."""
    return msgspec.json.format(msgspec.json.encode(saved), indent=2) + b"\n"


def decode_forecast(raw: bytes, origin: str) -> SavedForecast:
    """A saved forecast from a file's bytes; `origin` is its name, for the error.

    Raises:
        ConfigurationError: no forecast, or a forecast in another format.
    """
    resolution = "Create a new one with `upgrader plan -o FILE`."
    try:
        saved = untrusted.decode_json(raw, SavedForecast, untrusted.FILE_BYTES)
    except UnreadableError as error:
        raise ConfigurationError(
            f"{origin} contains no saved forecast", details=str(error), resolution=resolution
        ) from error
    if saved.format != FORMAT:
        raise ConfigurationError(
            f"{origin} has format {saved.format}, this release reads {FORMAT}", resolution=resolution
        )
    return saved


def _check_identity(saved: SavedForecast, fresh: SavedForecast) -> tuple[Stale, ...]:
    if not fresh.cluster or saved.cluster != fresh.cluster:
        message = f"It was created for another cluster ({saved.cluster}, this one is {fresh.cluster or 'not known'})."
        return (Stale(reason=StaleReason.OTHER_CLUSTER, message=message),)
    if (saved.stack, saved.stack_uid) != (fresh.stack, fresh.stack_uid):
        message = (
            f"It was created for stack {saved.stack} ({saved.stack_uid}), this one is {fresh.stack} "
            f"({fresh.stack_uid})."
        )
        return (Stale(reason=StaleReason.OTHER_STACK, message=message),)
    if saved.stack_generation != fresh.stack_generation:
        message = (
            f"Stack {saved.stack} was edited since: generation {saved.stack_generation} then, "
            f"{fresh.stack_generation} now."
        )
        return (Stale(reason=StaleReason.STACK_CHANGED, message=message),)
    if saved.revision != fresh.revision:
        message = f"It leads to revision {saved.revision}, a new forecast leads to {fresh.revision}."
        return (Stale(reason=StaleReason.OTHER_REVISION, message=message),)
    return ()


def _check_images(saved: SavedForecast, fresh: SavedForecast) -> tuple[Stale, ...]:
    ready = {image.key for image in fresh.images}
    return tuple(
        Stale(
            reason=StaleReason.IMAGE_GONE,
            message=f"Driver image {image.digest} ({image.version} on {image.kernel}) is no longer Ready.",
        )
        for image in saved.images
        if image.key not in ready
    )


def _check_limits(saved: SavedForecast, fresh: SavedForecast) -> tuple[Stale, ...]:
    stale = [
        Stale(reason=StaleReason.OTHER_GANG, message=f"{gang} would be stopped, but not in the saved forecast.")
        for gang in sorted(fresh.forecast.interrupted.difference(saved.limits.gangs))
    ]
    count = fresh.forecast.summary.interruptions
    if count > saved.limits.max_interruptions:
        message = f"{count} gangs would be stopped; the limit is {saved.limits.max_interruptions}."
        stale.append(Stale(reason=StaleReason.MORE_INTERRUPTIONS, message=message))
    lost, agreed = fresh.forecast.prediction.lost_gpu_hours, saved.limits.max_lost_gpu_hours
    if agreed is not None and lost > agreed:
        message = f"{rounded_up(lost):.1f} GPU-hours would be lost; the limit is {agreed:.1f}."
        stale.append(Stale(reason=StaleReason.MORE_LOSS, message=message))
    return tuple(stale)
