"""Time, registry, leadership and crash points for tests: each fits a port of reconcile and can be told to fail."""

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Verdict
from upgrader.core.errors import LostLeadershipError, RegistryError

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


class FakeClock:
    """Virtual time: it moves only by `advance`, and what was asked for later happens on the way, in order."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._later: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._now

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do `act` when that much time has passed."""
        heapq.heappush(self._later, (self._now + timedelta(seconds=seconds), next(self._order), act))

    def advance(self, seconds: float) -> None:
        """Let time pass; acts may ask for further acts."""
        end = self._now + timedelta(seconds=seconds)
        while self._later and self._later[0][0] <= end:
            self._now, _, act = heapq.heappop(self._later)
            act()
        self._now = end


class Skewed:
    """A clock that is ahead of another, or behind it."""

    def __init__(self, clock: FakeClock, ahead: timedelta) -> None:
        self._clock, self._ahead = clock, ahead

    def now(self) -> datetime:
        return self._clock.now() + self._ahead


class FakeRegistry:
    """Knows the images that a test names; every other image is absent."""

    def __init__(self, **digests: str) -> None:
        self.digests: dict[str, str] = dict(digests)
        self.reachable = True
        self.odd: Exception | None = None
        """What every question raises."""
        self.asked: list[str] = []

    def push(self, image: str, digest: str) -> str:
        """`digest` without its prefix may be short: it is filled up. Gives name@sha256:..."""
        name = image.partition("@")[0]
        folder, slash, last = name.rpartition("/")
        name = f"{folder}{slash}{last.partition(':')[0]}"
        pinned = f"{name}@sha256:{digest.ljust(64, '0')}"
        self.digests[image] = pinned
        self.digests[pinned] = pinned
        return pinned

    async def digest(self, image: str) -> str | None:
        self.asked.append(image)
        if self.odd is not None:
            raise self.odd
        if not self.reachable:
            raise RegistryError(f"no answer about {image}", details="the test took the registry away")
        return self.digests.get(image)


class FakeTrust:
    """Says of each image what a test wants; a good verdict where it wants nothing."""

    def __init__(self) -> None:
        self.reachable = True
        self.verdicts: dict[str, tuple[Verdict, ...]] = {}
        self.asked: list[tuple[str, Identity]] = []

    async def verify(self, image: str, identity: Identity) -> tuple[Verdict, ...]:
        self.asked.append((image, identity))
        if not self.reachable:
            raise RegistryError(f"no answer about {image}")
        good = Verdict(check=CheckName.IMAGE_SIGNATURE, passed=True, reason="signed by the key")
        return self.verdicts.get(image, (good,))


class FakeLeadership:
    """We lead until a test says otherwise."""

    def __init__(self) -> None:
        self.lost = False
        self.checks = 0

    def check(self) -> None:
        self.checks += 1
        if self.lost:
            raise LostLeadershipError("the lease may have passed to another controller")


class Killed(BaseException):
    """The process was killed at a crash point: no `except Exception` may stop it."""


class FakeCrashPoints:
    """Notes every crash point that was passed, and kills at the one a test names (once)."""

    def __init__(self, kill_at: tuple[str, str, str] | None = None) -> None:
        self.kill_at = kill_at
        self.passed: list[tuple[str, str, str]] = []

    def reached(self, *points: tuple[str, str, str]) -> None:
        self.passed.extend(points)
        if self.kill_at in points:
            self.kill_at = None
            raise Killed(points)
