"""Waiting for a condition by polling, in a thread."""

from collections.abc import Callable

import tenacity


def wait_until_true(holds: Callable[[], bool], *, seconds: float, every: float) -> bool:
    """Poll every `every` seconds until `holds` returns true, at most for `seconds`; returns whether it did."""
    trying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda held: not held),
        wait=tenacity.wait_fixed(every),
        stop=tenacity.stop_after_delay(seconds),
        retry_error_callback=lambda _state: False,
    )
    return trying(holds)
