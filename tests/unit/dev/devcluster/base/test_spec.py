import pytest

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.base.spec import MOST_BOXES, MOST_VMS, BoxSpec, ClusterSpec, KwokSpec, VmSpec, check_fleet


def test_a_number_of_boxes_is_named_by_letters():
    spec = ClusterSpec(boxes=3, kubelet="1.35.4", box_labels={"pool": "a"})

    assert spec.box_specs() == tuple(
        BoxSpec(name=name, kubelet="1.35.4", labels={"pool": "a"}) for name in ("gpu-a", "gpu-b", "gpu-c")
    )


def test_names_stay_different_beyond_the_alphabet():
    names = [box.name for box in ClusterSpec(boxes=MOST_BOXES).box_specs()]

    assert len(set(names)) == MOST_BOXES
    assert names[25:28] == ["gpu-z", "gpu-a1", "gpu-b1"]


@pytest.mark.parametrize("count", [-1, MOST_BOXES + 1])
def test_too_many_boxes_are_refused(count):
    with pytest.raises(DevClusterError, match=f"{count} boxes are not possible"):
        ClusterSpec(boxes=count).box_specs()


def test_names_and_whole_boxes_are_taken_as_they_are():
    whole = BoxSpec(name="x", kernel="6.1.0-50-amd64")

    assert ClusterSpec(boxes=("n1", "n2")).box_specs() == (BoxSpec(name="n1"), BoxSpec(name="n2"))
    assert ClusterSpec(boxes=(whole,)).box_specs() == (whole,)


def test_virtual_nodes_are_a_number_names_or_whole():
    whole = VmSpec(name="x", kernel="6.1.0-47-amd64")

    assert ClusterSpec().vm_specs() == ()
    assert ClusterSpec(vms=2, kubelet="1.35.4", vm_labels={"pool": "a"}).vm_specs() == tuple(
        VmSpec(name=name, kubelet="1.35.4", labels={"pool": "a"}) for name in ("vm-a", "vm-b")
    )
    assert ClusterSpec(vms=("n",)).vm_specs() == (VmSpec(name="n"),)
    assert ClusterSpec(vms=(whole,)).vm_specs() == (whole,)
    with pytest.raises(DevClusterError, match=f"{MOST_VMS + 1} virtual nodes are not possible"):
        ClusterSpec(vms=MOST_VMS + 1).vm_specs()


def test_a_number_of_kwok_nodes_is_the_usual_ones():
    assert ClusterSpec(kwok=2).kwok_spec() == KwokSpec(count=2)
    assert KwokSpec(count=2, prefix="fleet").names() == ("fleet-0", "fleet-1")


def test_a_fast_cluster_has_no_fleet():
    fleet = (KwokSpec(count=100), KwokSpec(count=1, prefix="more"))

    check_fleet(fleet[:1], fast=True)
    check_fleet(fleet, fast=False)
    with pytest.raises(DevClusterError, match="101 kwok nodes are too many for a fast cluster") as raised:
        check_fleet(fleet, fast=True)
    assert "fast=False" in raised.value.resolution
