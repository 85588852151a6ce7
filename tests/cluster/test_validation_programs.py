"""Programs of the validation on a real kubelet of a box: each gets all devices, and upgrader judges their results.

The devices are simulated, and so is the program: it prints a report in the form of nccl-tests.
"""

import msgspec
import pytest

from tests.support.nccl_reports import render_all_reduce
from upgrader.core.model.validation import ValidationLevel
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.stack.naming import validation_name

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PRINT = """
test "$0" = 8 || { echo "GPUS is $0" >&2; exit 2; }
count=0; for device in /dev/sim-gpu*; do count=$((count + 1)); done
test $count = 8 || { echo "$count devices" >&2; exit 3; }
for line in "$@"; do echo "$line"; done
"""


@pytest.fixture
def upgrade(installed):
    """A node upgrade whose all-reduce reports so many GPUs; the image has no start of its own for it."""

    def order(gpus=8):
        command = ["/bin/busybox", "sh", "-c", PRINT, "$(GPUS)", *render_all_reduce(gpus=gpus).splitlines()]
        program = {"image": installed.product.node, "command": command}
        state = installed.state("1.0.0", "1.34.4")
        made = installed.upgrade(state, state | {"allReduce": program})
        return msgspec.structs.replace(
            made, spec=msgspec.structs.replace(made.spec, validation=ValidationLevel.ALL_REDUCE)
        )

    return order


def result_of_programs(bench, upgrade):
    pod = bench.api.get(f"{bench.pods}/{validation_name(upgrade, reverting=False)}")
    (programs,) = [each for each in pod["status"]["initContainerStatuses"] if each["name"] == "programs"]
    return msgspec.json.decode(programs["state"]["terminated"]["message"], type=OrderResult)


def test_a_node_is_compared_with_its_own_results(installed, upgrade):
    first, again, fewer = upgrade(), upgrade(), upgrade(gpus=7)
    assert installed.prepare(first)[0] == 0
    measured = []
    for order in (first, again):
        code, result = installed.validate(order)
        assert (code, result.reason) == (0, Reason.DONE), result
        measured.append(result_of_programs(installed, order).message)
    bandwidth = "all-reduce: 478.12 GB/s bus bandwidth over 8 GPUs"
    assert measured == [f"{bandwidth} (the first result of this node)", f"{bandwidth} (highest one before: 478.12)"]

    code, result = installed.validate(fewer)
    assert (code, result.reason, result.message) == (
        18,
        Reason.DEVICE_FAILED,
        "all-reduce: 7 GPUs took part, 8 are expected",
    )
