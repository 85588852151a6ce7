"""Random numbers of a run: each subject has its own stream, and draws of one subject do not change another's."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of random numbers that depends only on a seed and a subject."""

    def __init__(self, seed: int, subject: str) -> None:
        self._seed = seed
        self._random = random.Random(f"{seed} {subject}")  # noqa: S311 - reproducible, and not a secret

    def stream_for(self, subject: str) -> "Draws":
        """The stream of another subject."""
        return Draws(self._seed, subject)

    def is_hit(self, chance: float) -> bool:
        """True with this probability."""
        return chance > 0 and self._random.random() < chance

    def draw_number(self, low: int, high: int) -> int:
        """A number between two numbers, both included."""
        return self._random.randint(low, high)

    def draw_choice(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return self._random.choice(choices)

    def draw_sample(self, choices: Sequence[T], most: int) -> list[T]:
        """Up to `most` of the choices, in their order."""
        count = self._random.randint(0, min(most, len(choices)))
        picked = set(self._random.sample(range(len(choices)), count))
        return [choice for index, choice in enumerate(choices) if index in picked]
