"""Thresholds of Python's cyclic garbage collector in a controller, raised since readings contain no cycles."""

import gc

THRESHOLDS = (50_000, 20, 20)
"""Allocations before a collection of the youngest generation, and collections before those of older ones.

A reading of 2,000 nodes with every operand decodes 14,000 pods, which contain no cycles. At Python's own thresholds
(700, 10, 10) the collector traversed all of them repeatedly during the reading: more than 40 % of its processor time.
"""


def raise_thresholds() -> None:
    """Set the thresholds for this process."""
    gc.set_threshold(*THRESHOLDS)
