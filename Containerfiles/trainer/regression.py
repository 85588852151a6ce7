"""Logistic regression by mini-batch SGD on data from fixed seeds: small, real, and reproducible.

Every member of a gang has its own share of the data and the same weights. Sums of gradients are in the order of ranks,
so that an interrupted run ends with exactly the same weights as an uninterrupted one.
"""

import math
import random

FEATURES = 16
SAMPLES = 256
BATCH = 32
RATE = 0.5


class Regression:
    """One member's data, and the weights that all members share."""

    def __init__(self, member: int) -> None:
        truth = random.Random("truth")
        self._truth = [truth.gauss(0.0, 2.0) for _ in range(FEATURES)]
        self._member = member
        source = random.Random(f"data of member {member}")
        self._samples = [self._sample(source) for _ in range(SAMPLES)]
        self.weights = [0.0] * FEATURES

    def gradient(self, step: int) -> tuple[list[float], float]:
        """The mean gradient and the mean loss of this member's batch for the step after `step`."""
        picks = random.Random(f"batch {step} of member {self._member}").sample(self._samples, BATCH)
        total, loss = [0.0] * FEATURES, 0.0
        for features, label in picks:
            guess = _probability(sum(w * x for w, x in zip(self.weights, features, strict=True)))
            loss -= math.log(max(guess if label else 1.0 - guess, 1e-12))
            total = [t + (guess - label) * x for t, x in zip(total, features, strict=True)]
        return [t / BATCH for t in total], loss / BATCH

    def apply(self, gradient: list[float]) -> None:
        """Apply a gradient to the weights."""
        self.weights = [w - RATE * g for w, g in zip(self.weights, gradient, strict=True)]

    def _sample(self, source: random.Random) -> tuple[list[float], int]:
        features = [source.gauss(0.0, 1.0) for _ in range(FEATURES)]
        chance = _probability(sum(w * x for w, x in zip(self._truth, features, strict=True)))
        return features, int(source.random() < chance)


def _probability(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, score))))
