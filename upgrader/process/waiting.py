"""Waiting, in a thread, for what is looked at again and again."""

from collections.abc import Callable

import tenacity


def comes_true(holds: Callable[[], bool], *, seconds: float, every: float) -> bool:
    """Look every so many seconds until it holds, for `seconds` at the most; whether it did. What `holds` raises, is."""
    trying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda held: not held),
        wait=tenacity.wait_fixed(every),
        stop=tenacity.stop_after_delay(seconds),
        retry_error_callback=lambda _state: False,
    )
    return trying(holds)
