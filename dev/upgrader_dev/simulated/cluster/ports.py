"""Time, registry, leadership and crash points for tests: each implements a port and can be made to fail."""

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Verdict
from upgrader.core.errors import LostLeadershipError, RegistryError

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


class FakeClock:
    """Virtual time: it moves only by `advance`, which runs the actions that are scheduled until then, in order."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._later: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._now

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Schedule `act` for that many seconds from now."""
        heapq.heappush(self._later, (self._now + timedelta(seconds=seconds), next(self._order), act))

    def advance(self, seconds: float) -> None:
        """Advance the time; actions may schedule further actions."""
        end = self._now + timedelta(seconds=seconds)
        while self._later and self._later[0][0] <= end:
            self._now, _, act = heapq.heappop(self._later)
            act()
        self._now = end


class SkewedClock:
    """A clock with an offset from another clock."""

    def __init__(self, clock: FakeClock, ahead: timedelta) -> None:
        self._clock, self._ahead = clock, ahead

    def now(self) -> datetime:
        return self._clock.now() + self._ahead


class FakeRegistry:
    """A registry with the images of a test; other images do not exist."""

    def __init__(self, **digests: str) -> None:
        self.digests: dict[str, str] = dict(digests)
        self.labels_of: dict[str, dict[str, str] | None] = {}
        """Labels of images, by `name@sha256:...`; others have none. None is an index of several images."""
        self.reachable = True
        self.error: Exception | None = None
        """An error that every request raises."""
        self.requests: list[str] = []

    def push(self, image: str, digest: str) -> str:
        """Store an image and return name@sha256:...; `digest` without its prefix is padded with zeros."""
        name = image.partition("@")[0]
        folder, slash, last = name.rpartition("/")
        name = f"{folder}{slash}{last.partition(':')[0]}"
        pinned = f"{name}@sha256:{digest.ljust(64, '0')}"
        self.digests[image] = pinned
        self.digests[pinned] = pinned
        return pinned

    async def digest(self, image: str) -> str | None:
        self._receive_request(image)
        return self.digests.get(image)

    async def labels(self, image: str) -> dict[str, str] | None:
        self._receive_request(image)
        labels = self.labels_of.get(image, {})
        if labels is None:
            raise ValueError(f"{image} is an index")
        return labels

    def _receive_request(self, image: str) -> None:
        self.requests.append(image)
        if self.error is not None:
            raise self.error
        if not self.reachable:
            raise RegistryError(f"no response about {image}", details="the test made the registry unreachable")


class FakeTrust:
    """Returns the verdicts of a test for an image; by default a passed check."""

    def __init__(self) -> None:
        self.reachable = True
        self.verdicts: dict[str, tuple[Verdict, ...]] = {}
        self.requests: list[tuple[str, Identity]] = []

    async def verify(self, image: str, identity: Identity) -> tuple[Verdict, ...]:
        self.requests.append((image, identity))
        if not self.reachable:
            raise RegistryError(f"no response about {image}")
        good = Verdict(check=CheckName.IMAGE_SIGNATURE, passed=True, reason="signed by the key")
        return self.verdicts.get(image, (good,))


class FakeLeadership:
    """The process leads until `lost` is set."""

    def __init__(self) -> None:
        self.lost = False
        self.checks = 0

    def check(self) -> None:
        self.checks += 1
        if self.lost:
            raise LostLeadershipError("the lease may have passed to another controller")


class ProcessKilled(BaseException):
    """The process was killed at a crash point; `except Exception` does not catch this."""


class FakeCrashPoints:
    """Records every crash point that was reached, and kills the process at the one of `kill_at`, once."""

    def __init__(self, kill_at: tuple[str, str, str] | None = None) -> None:
        self.kill_at = kill_at
        self.passed: list[tuple[str, str, str]] = []

    def reached(self, *points: tuple[str, str, str]) -> None:
        self.passed.extend(points)
        if self.kill_at in points:
            self.kill_at = None
            raise ProcessKilled(points)
