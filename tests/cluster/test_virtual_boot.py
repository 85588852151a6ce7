"""One virtual node boots and reboots into its other kernel: all that the gate proves of virtual nodes."""

import pytest

from upgrader_dev.devcluster import VmSpec

pytestmark = [pytest.mark.vm, pytest.mark.gate, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def node(start_cluster):
    return start_cluster("boot", boxes=0, vms=(VmSpec(name="vm-a"),)).virtual_node("vm-a")


def test_it_boots_and_reboots_into_the_other_kernel(node):
    first = node.wait_ready()
    other = next(kernel for kernel in node.kernels if kernel != first.kernel)
    node.restart(other)
    second = node.wait_ready()
    assert (first.kernel, first.ready, second.kernel, second.ready) == (node.kernels[-1], "True", other, "True")
    assert first.boot_id != second.boot_id
    console = node.log("console").read_text(errors="replace")
    assert [line for kernel in (first.kernel, other) if (line := f"vm-a boots {kernel}") not in console] == []
