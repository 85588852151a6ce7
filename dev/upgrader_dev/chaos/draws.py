"""Chances of one run: each subject has a stream of its own, so that what one of them draws changes no other's."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of chances that depends on a seed and a subject only."""

    def __init__(self, seed: int, subject: str) -> None:
        self._seed = seed
        self._random = random.Random(f"{seed} {subject}")  # noqa: S311 - the same every time, no secret

    def of(self, subject: str) -> "Draws":
        """The stream of another subject."""
        return Draws(self._seed, subject)

    def happens(self, chance: float) -> bool:
        """True in that part of all draws."""
        return chance > 0 and self._random.random() < chance

    def number(self, low: int, high: int) -> int:
        """Between two numbers, both of them among the results."""
        return self._random.randint(low, high)

    def among(self, choices: Sequence[T]) -> T:
        """One of several."""
        return self._random.choice(choices)

    def some(self, choices: Sequence[T], most: int) -> list[T]:
        """Up to so many of them, in their order."""
        count = self._random.randint(0, min(most, len(choices)))
        picked = set(self._random.sample(range(len(choices)), count))
        return [choice for index, choice in enumerate(choices) if index in picked]
