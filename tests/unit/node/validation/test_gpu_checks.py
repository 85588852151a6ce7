"""Each check of a GPU: what is a fault, and what only looks like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.smi_reports import make_gpu
from upgrader.node.host.pci import PciDevice
from upgrader.node.validation.gpu_checks import (
    GpuCheck,
    GpuConnections,
    GpuFault,
    find_gpu_faults,
    find_missing_gpus,
    find_unregistered_gpus,
    summarize_gpus,
)

FIRST, SECOND = "0000:00:00.0", "0000:01:00.0"
SPEED, INACTIVE = "26.562 GB/s", "<inactive>"
PORTS = {FIRST: 16, SECOND: 16}


def faults(*gpus, **connections):
    """The checks that find a fault, of each GPU."""
    found = find_gpu_faults(gpus, GpuConnections(port_widths=PORTS, **connections))
    return [[fault.check for fault in found if fault.uuid == gpu.uuid] for gpu in gpus]


def link_states(active, total=18):
    return {number: SPEED if number < active else INACTIVE for number in range(total)}


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({}, ""),
        ({"width": "8x"}, GpuCheck.WIDTH),
        ({"width": "8x", "max_width": "8x"}, ""),
        ({"width": "GPU is lost"}, GpuCheck.WIDTH),
        ({"width": "", "max_width": "16x"}, ""),
        ({"uncorrected": {}}, ""),
        ({"uncorrected": {"dram_uncorrectable": "00"}}, ""),
        ({"uncorrected": {"dram_uncorrectable": "1"}}, GpuCheck.ECC),
        ({"uncorrected": {"dram_uncorrectable": "Unknown Error"}}, GpuCheck.ECC),
        ({"remap_pending": "", "remap_failure": ""}, ""),
        ({"remap_pending": "Yes"}, GpuCheck.REMAP_PENDING),
        ({"remap_failure": "Yes"}, GpuCheck.REMAP_FAILURE),
        ({"retirement_pending": "Yes"}, GpuCheck.REMAP_PENDING),
        ({"mig": ""}, ""),
        ({"mig": "Enabled", "mig_devices": 2}, ""),
        ({"mig": "Enabled"}, GpuCheck.MIG),
        ({"mig": "Unknown Error"}, GpuCheck.MIG),
        ({"fabric_state": "", "fabric_status": ""}, ""),
        ({"fabric_state": "In Progress", "fabric_status": ""}, GpuCheck.FABRIC),
        ({"fabric_status": "Unknown Error"}, GpuCheck.FABRIC),
    ],
)
def test_the_report_of_a_gpu(changes, check):
    assert faults(make_gpu(**changes)) == [[check] * bool(check)]


@pytest.mark.parametrize(("port", "check"), [(16, GpuCheck.WIDTH), (8, ""), (0, "")])
def test_a_slot_with_fewer_lanes_and_a_virtual_machine_are_no_fault(port, check):
    """As on machines of AWS, whose T4 and A10G have 8 of 16 lanes and no visible port."""
    connections = GpuConnections(port_widths={FIRST: port} if port else {})
    assert [fault.check for fault in find_gpu_faults([make_gpu(width="8x")], connections)] == [check] * bool(check)


@pytest.mark.parametrize(
    ("fabric", "active", "peer", "check"),
    [
        ("Completed", 18, 18, ""),
        ("Completed", 17, 18, GpuCheck.NVLINK),
        ("Completed", 17, 17, GpuCheck.NVLINK),  # a switch is gone
        ("Completed", 0, 0, GpuCheck.NVLINK),
        ("", 17, 17, ""),  # bridges on some links
        ("", 16, 17, GpuCheck.NVLINK),
        ("", 0, 17, ""),  # no bridge on this one
    ],
)
def test_links_of_a_gpu_and_its_peer(fabric, active, peer, check):
    status = "Success" if fabric else ""
    gpus = [
        make_gpu(uuid, address, fabric_state=fabric, fabric_status=status)
        for uuid, address in (("GPU-aaaa", FIRST), ("GPU-bbbb", SECOND))
    ]
    assert faults(*gpus, links={"GPU-aaaa": link_states(active), "GPU-bbbb": link_states(peer)})[0] == [check] * bool(
        check
    )


def test_links_that_are_not_reported_or_switched_off_by_mig():
    first, second = make_gpu(), make_gpu("GPU-bbbb", SECOND)
    partitioned = make_gpu(mig="Enabled", mig_devices=1)
    assert faults(first, second, links={}) == [[], []]
    assert faults(partitioned, second, links={"GPU-aaaa": link_states(0), "GPU-bbbb": link_states(18)}) == [[], []]
    # All links are inactive, and none is listed.
    assert faults(first, second, links={"GPU-aaaa": {}, "GPU-bbbb": {}}) == [[GpuCheck.NVLINK]] * 2


def test_links_of_the_only_gpu_of_a_virtual_machine():
    assert faults(make_gpu(), links={"GPU-aaaa": link_states(0)}) == [[]]


@given(st.integers(0, 18), st.integers(0, 18))
def test_no_gpu_without_fabric_is_blamed_for_more_links_than_its_peer_has(first, second):
    gpus = [make_gpu(f"GPU-{number}", FIRST, fabric_state="", fabric_status="") for number in range(2)]
    found = faults(*gpus, links={"GPU-0": link_states(first), "GPU-1": link_states(second)})
    fewer = [first < second and first > 0, second < first and second > 0]
    assert [bool(fault) for fault in found] == fewer


def test_a_fault_names_the_gpu_the_value_and_what_to_do():
    (fault,) = find_gpu_faults([make_gpu(width="4x")], GpuConnections(port_widths=PORTS))
    assert fault == GpuFault(
        check=GpuCheck.WIDTH,
        uuid="GPU-aaaa",
        subject="GPU 0 (0000:00:00.0)",
        message="has 4 of 16 lanes of its PCIe link",
        fix="power the node off and on, then reseat the GPU",
    )
    assert str(fault) == (
        "PcieWidth: GPU 0 (0000:00:00.0) has 4 of 16 lanes of its PCIe link; "
        "power the node off and on, then reseat the GPU"
    )


def test_gpus_on_the_bus_that_the_driver_lacks():
    def function(address, **changes):
        return PciDevice(**{"address": address, "kind": "0302", "vendor": "10de", "driver": "nvidia", **changes})

    functions = [
        function("0000:01:00.0"),
        function("0000:02:00.0", driver=""),
        function("0000:03:00.0", kind="0300", driver="nouveau"),
        function("0000:04:00.0", driver="vfio-pci"),
        function("0000:01:00.4", virtual=True),
        function("0000:05:00.0", kind="0680"),
        function("0000:06:00.0", vendor="1a03"),
    ]
    found = find_missing_gpus(functions, {"0000:01:00.0"})
    assert found.check is GpuCheck.PCI_FUNCTIONS
    assert found.message == "has 3 GPU(s), the driver lacks 2: 0000:02:00.0 (no driver), 0000:03:00.0 (nouveau)"
    assert find_missing_gpus(functions, {f"0000:0{number}:00.0" for number in (1, 2, 3)}) is None


def test_gpus_that_have_not_joined_the_fabric():
    states = {"Not Started": "0000:01:00.0", "In Progress": "0000:02:00.0", "Completed": "0000:03:00.0", "": FIRST}
    gpus = [make_gpu(state, address, fabric_state=state) for state, address in states.items()]
    assert find_unregistered_gpus(gpus) == "0000:01:00.0, 0000:02:00.0"


def test_the_state_of_a_node_in_few_words():
    gpus = [make_gpu("GPU-0"), make_gpu("GPU-1", width="8x", fabric_state="", mig="")]
    assert summarize_gpus(gpus, GpuConnections(links={"GPU-0": link_states(18)})) == {
        "model": "2 x NVIDIA H100 80GB HBM3",
        "pcie": "1 x 16x, 1 x 8x",
        "mig": "1 x Disabled",
        "fabric": "1 x Completed",
        "active NVLinks": "1 x 18",
    }
