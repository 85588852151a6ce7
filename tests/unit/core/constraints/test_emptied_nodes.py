"""Nodes on which an upgrade ends all pods, and which of them only because their driver may not be unloaded."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.facts import KERNEL, NEW, OLD, image, node, target
from tests.support.forecasts import NEXT_KERNEL
from upgrader.core.constraints.emptied_nodes import emptied_nodes, perhaps_rebooted_nodes

IMAGES = (image(OLD), image(NEW), image(NEW, NEXT_KERNEL))
SETTINGS = (("cpuManagerPolicy", "static"),)


def test_a_node_whose_driver_is_replaced_is_perhaps_rebooted():
    nodes = (node("a"), node("b", NEW), node("c", driver_key="none"), node("d", driver_key="unknown"))
    assert perhaps_rebooted_nodes(nodes, target(), IMAGES) == {"a", "c"}
    assert emptied_nodes(nodes, target(), IMAGES, reboots_after_failed_unload=True) == {"a", "c"}
    assert emptied_nodes(nodes, target(), IMAGES, reboots_after_failed_unload=False) == frozenset()


@given(
    versions=st.lists(st.sampled_from([OLD, NEW]), min_size=1, max_size=4),
    kernel=st.sampled_from(["", KERNEL, NEXT_KERNEL]),
    settings=st.sampled_from([(), SETTINGS]),
)
def test_nodes_that_are_emptied_in_any_case_are_no_others(versions, kernel, settings):
    nodes = tuple(node(str(number), version) for number, version in enumerate(versions))
    wanted = target(kernel=kernel, kubelet_settings=settings)
    certain = emptied_nodes(nodes, wanted, IMAGES, reboots_after_failed_unload=False)
    perhaps = perhaps_rebooted_nodes(nodes, wanted, IMAGES)
    assert not certain & perhaps
    assert emptied_nodes(nodes, wanted, IMAGES, reboots_after_failed_unload=True) == certain | perhaps
    assert certain == (frozenset(each.name for each in nodes) if settings or kernel == NEXT_KERNEL else frozenset())
