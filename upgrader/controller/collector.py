"""Python's collector of cycles in a controller: it looks less often, since a reading of a fleet is not garbage."""

import gc

THRESHOLDS = (50_000, 20, 20)
"""Objects made before it looks at the youngest, and how often it does until it looks at the older ones.

A look at 2,000 nodes with every operand decodes 14,000 pods, which hold no cycles. At Python's own thresholds
(700, 10, 10) the collector walked through all of them again and again while they came in: more than 40 % of the
processor time of a look.
"""


def spare() -> None:
    """For this process, from now on."""
    gc.set_threshold(*THRESHOLDS)
