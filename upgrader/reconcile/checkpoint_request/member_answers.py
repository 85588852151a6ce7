"""Answers of the members of a gang: an answer that cannot be read, or not in time, is no answer."""

import asyncio
from collections.abc import Sequence

import structlog

from upgrader.api.kubernetes import Pod
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.errors import LostLeadershipError, describe_error
from upgrader.core.model.phases import RequestPhase
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()

READING_SECONDS = 30.0
"""Limit for reading all members of a gang; afterwards there is no answer, so that one gang does not delay others."""


async def read_answers(
    context: Context, request: CheckpointRequest, pods: Sequence[Pod], *, about_to_stop: bool
) -> tuple[tuple[Ack, ...], dict[str, int], str]:
    """Answers, progress, and why neither could be read: an error is no answer, and deadlines continue to pass."""
    method, recorded = context.methods[request.spec.method], request.status.acks
    try:
        async with asyncio.timeout(READING_SECONDS):
            if request.status.phase is RequestPhase.REQUESTED:
                return await method.answers(request, pods) or recorded, {}, ""
            if about_to_stop:
                # Read again right before the stop: a member that has resumed training has withdrawn "parked".
                return await method.answers(request, pods), {}, ""
            if request.status.phase is RequestPhase.RESTARTING:
                alive = [
                    pod for pod in pods if pod.metadata.deletion_timestamp is None and pod.status.phase == "Running"
                ]
                return recorded, dict(await method.progress(request, alive)), ""
    except TimeoutError:
        why = f"its members were not read within {READING_SECONDS:.0f} s"
        log.warning("answers of members cannot be read", gang=request.spec.gang, because=why)
        return () if about_to_stop else recorded, {}, why
    except LostLeadershipError:
        raise
    except Exception as error:  # noqa: BLE001 - any error while reading members is no answer
        log.warning("answers of members cannot be read", gang=request.spec.gang, because=describe_error(error))
        return () if about_to_stop else recorded, {}, describe_error(error)
    return recorded, {}, ""
