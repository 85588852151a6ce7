"""How many pods a PodDisruptionBudget can ever let go."""

import msgspec
import pytest

from upgrader.api.workloads import Budget
from upgrader.cli.linting import most_at_once

SYNC_FAILED = {"conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}]}


@pytest.mark.parametrize(
    ("spec", "status", "most"),
    [
        ({"maxUnavailable": 0}, {}, 0),
        ({"maxUnavailable": 2}, {}, 2),
        ({"maxUnavailable": "0%"}, {}, 0),
        ({"maxUnavailable": "30%"}, {}, None),
        ({"maxUnavailable": "30%"}, {"expectedPods": 4}, 2),
        ({"minAvailable": "100%"}, {}, 0),
        ({"minAvailable": 3}, {}, None),
        ({"minAvailable": 3}, {"expectedPods": 4}, 1),
        ({"minAvailable": 9}, {"expectedPods": 4}, 0),
        ({"minAvailable": "50%"}, {"expectedPods": 3}, 1),
        ({"minAvailable": "half"}, {"expectedPods": 3}, None),
        ({}, {"expectedPods": 3}, None),
        ({"maxUnavailable": 2}, SYNC_FAILED, 0),
    ],
)
def test_most_at_once(spec, status, most):
    assert most_at_once(msgspec.convert({"metadata": {"name": "x"}, "spec": spec, "status": status}, Budget)) == most
