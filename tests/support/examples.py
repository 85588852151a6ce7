"""How many examples a law is tried on: few between two edits and in the gate, all, or at least 1,000 at night."""

import enum
import os

from hypothesis import settings

GATE_SHARE = 3
LEAST = 5


class Profile(enum.StrEnum):
    """How long the tests may take: the value of UPGRADER_TEST_PROFILE."""

    GATE = "gate"
    """A third of the examples: `make unit` and `make test`."""
    FULL = "full"
    """As many as the test names: `make test-full`."""
    NIGHTLY = "nightly"
    """At least 1,000: `make nightly`."""


PROFILE = Profile(os.environ.get("UPGRADER_TEST_PROFILE", Profile.GATE))


def examples(count: int) -> settings:
    """So many examples, changed by the profile."""
    if PROFILE is Profile.GATE:
        return settings(max_examples=max(count // GATE_SHARE, min(count, LEAST)))
    return settings(max_examples=max(count, settings().max_examples if PROFILE is Profile.NIGHTLY else 0))
