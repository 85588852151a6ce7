import msgspec
import pytest

from tests.support.facts import KERNEL, NEW, OLD, PLUGIN_KEY, fresh_node, image, node, snapshot, target
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.gpu_stack.drift import DriftReason, Finding, NodeDrift, find_drift, node_drift

NEXT_KERNEL = "6.1.0-41-amd64"
IMAGES = (image(OLD), image(NEW), image(NEW, NEXT_KERNEL))
R = DriftReason

TABLE = {
    "a node as the stack asks": (node("a", NEW), target(), []),
    "never installed": (
        node("a", driver_key="", plugin_key="", operands="", revision=""),
        target(),
        [Finding(reason=R.NOT_INSTALLED, message="The operator has not installed a driver on the node yet.")],
    ),
    "its driver was taken away": (
        node("a", NEW, driver_key="none", operands="off", revision=""),
        target(),
        [
            Finding(reason=R.DRIVER_ABSENT, message="The node's driver was removed."),
            Finding(reason=R.OPERANDS_OFF, message="The node's driver and device plugin pods are switched off."),
        ],
    ),
    "its image is gone": (
        node("a", NEW, driver_key="0123456789abcdef"),
        target(),
        [
            Finding(
                reason=R.DRIVER_UNKNOWN,
                message="The node's driver label names image 0123456789abcdef, which is the key of no Ready "
                "DriverImage.",
            )
        ],
    ),
    "another kernel came up": (
        node("a", NEW, kernel=NEXT_KERNEL),
        target(),
        [
            Finding(
                reason=R.KERNEL,
                message=f"The node runs kernel {NEXT_KERNEL}, its driver image is for {KERNEL}.",
            )
        ],
    ),
    "another kernel came up for which there is no image": (
        node("a", NEW, kernel="6.1.0-99-amd64"),
        target(),
        [
            Finding(
                reason=R.KERNEL,
                message=f"The node runs kernel 6.1.0-99-amd64, its driver image is for {KERNEL}.",
            ),
            Finding(
                reason=R.NO_DRIVER_IMAGE,
                message="There is no Ready DriverImage for sim 570.10 on kernel 6.1.0-99-amd64.",
                counts=False,
            ),
        ],
    ),
    "another driver version": (
        node("a", OLD),
        target(),
        [Finding(reason=R.DRIVER, message="The node has driver sim 560.1, the stack requires sim 570.10.")],
    ),
    "another device plugin": (
        node("a", NEW, plugin_key="0000"),
        target(),
        [
            Finding(
                reason=R.DEVICE_PLUGIN,
                message=f"The node has device plugin 0000, the stack requires {PLUGIN_KEY} "
                "(registry.example/plugin:1.0, nvidia.com/gpu).",
            )
        ],
    ),
    "a device plugin whose digest nobody knows is no reason": (
        node("a", NEW, plugin_key="0000"),
        target(plugin_digest=""),
        [],
    ),
    "another kubelet": (
        node("a", NEW, revision=target(kubelet_version="1.36.0").revision),
        target(kubelet_version="1.36.0"),
        [Finding(reason=R.KUBELET, message="The node runs kubelet 1.35.4, the stack requires 1.36.0.")],
    ),
    "a kernel that the stack asks for": (
        node("a", NEW, revision=target(kernel=NEXT_KERNEL).revision),
        target(kernel=NEXT_KERNEL),
        [Finding(reason=R.REBOOT, message=f"The node runs kernel {KERNEL}, the stack requires {NEXT_KERNEL}.")],
    ),
    "a kernel that the stack asks for and nobody built for": (
        node("a", NEW, revision=target(kernel="6.1.0-99-amd64").revision),
        target(kernel="6.1.0-99-amd64"),
        [
            Finding(reason=R.REBOOT, message=f"The node runs kernel {KERNEL}, the stack requires 6.1.0-99-amd64."),
            Finding(
                reason=R.NO_DRIVER_IMAGE,
                message="There is no Ready DriverImage for sim 570.10 on kernel 6.1.0-99-amd64.",
                counts=False,
            ),
        ],
    ),
    "a kubelet that is not managed is no reason": (node("a", NEW, kubelet_version="1.20.0"), target(), []),
    "everything at once, every reason": (
        node("a", OLD, kernel=NEXT_KERNEL, plugin_key="", operands="off"),
        target(kubelet_version="1.36.0"),
        [
            Finding(
                reason=R.KERNEL,
                message=f"The node runs kernel {NEXT_KERNEL}, its driver image is for {KERNEL}.",
            ),
            Finding(reason=R.DRIVER, message="The node has driver sim 560.1, the stack requires sim 570.10."),
            Finding(
                reason=R.DEVICE_PLUGIN,
                message=f"The node has device plugin none, the stack requires {PLUGIN_KEY} "
                "(registry.example/plugin:1.0, nvidia.com/gpu).",
            ),
            Finding(reason=R.KUBELET, message="The node runs kubelet 1.35.4, the stack requires 1.36.0."),
            Finding(reason=R.OPERANDS_OFF, message="The node's driver and device plugin pods are switched off."),
        ],
    ),
    "a kernel label that disagrees is shown and counts for nothing": (
        node("a", NEW, kernel_label=NEXT_KERNEL),
        target(),
        [
            Finding(
                reason=R.KERNEL_LABEL_DISAGREES,
                message=f"The kernel label contains {NEXT_KERNEL}, the kubelet reports {KERNEL}, which is used.",
                counts=False,
            )
        ],
    ),
    "a kernel label of an earlier boot is stale, and counts for nothing": (
        node("a", NEW, kernel_label=NEXT_KERNEL, labels_boot="boot-1", boot_id="boot-2"),
        target(),
        [
            Finding(
                reason=R.KERNEL_LABEL_STALE,
                message=f"The kernel label contains {NEXT_KERNEL} from an earlier boot; the kubelet reports "
                f"{KERNEL}, which is used.",
                counts=False,
            )
        ],
    ),
    "a kernel label of this boot that disagrees is not stale": (
        node("a", NEW, kernel_label=NEXT_KERNEL, labels_boot="boot-2", boot_id="boot-2"),
        target(),
        [
            Finding(
                reason=R.KERNEL_LABEL_DISAGREES,
                message=f"The kernel label contains {NEXT_KERNEL}, the kubelet reports {KERNEL}, which is used.",
                counts=False,
            )
        ],
    ),
    "labels that agree say nothing": (node("a", NEW, kernel_label=KERNEL, driver_version_label=NEW), target(), []),
    "a driver version label that disagrees is shown and counts for nothing": (
        node("a", NEW, driver_version_label=OLD),
        target(),
        [
            Finding(
                reason=R.DRIVER_LABEL_DISAGREES,
                message="The driver version label contains 560.1, the node's driver image is 570.10, which is used.",
                counts=False,
            )
        ],
    ),
    "only what cannot be seen from outside differs": (
        node("a", NEW, revision="0123456789"),
        target(),
        [
            Finding(
                reason=R.REVISION,
                message=f"The node was released on revision 0123456789, the stack's is {target().revision}.",
            )
        ],
    ),
    "its revision label is missing": (
        node("a", NEW, revision=""),
        target(),
        [
            Finding(
                reason=R.REVISION_MISSING,
                message="The node carries no revision: it was not released by an upgrade, or its label was removed.",
            )
        ],
    ),
}


@pytest.mark.parametrize(("one", "wanted", "findings"), TABLE.values(), ids=TABLE.keys())
def test_every_reason_of_a_node(one, wanted, findings):
    found = node_drift(one, wanted, Catalogue(IMAGES))
    assert found == NodeDrift(node="a", findings=tuple(findings))
    assert found.drifted == any(finding.counts for finding in findings)


def test_drift_is_told_by_name_and_nodes_in_order_are_left_out():
    nodes = [node("c", OLD), node("b", NEW), node("a", OLD)]
    assert [one.node for one in find_drift(snapshot(nodes), target())] == ["a", "c"]


def test_an_image_that_was_built_anew_is_no_reason():
    rebuilt = image(NEW, KERNEL)
    again = type(rebuilt)(key="0" * 16, vendor="sim", version=NEW, kernel=KERNEL, digest="x@sha256:" + "b" * 64)
    catalogue = Catalogue((again, rebuilt))
    assert node_drift(node("a", NEW), target(), catalogue).findings == ()
    assert catalogue.required_image(node("a", NEW), target()) == rebuilt
    assert catalogue.required_image(node("a", OLD), target()) == again  # of equals the least key, whatever their order
    assert Catalogue((rebuilt, again)).required_image(node("a", OLD), target()) == again


REPAIR = {
    "its kernel and its driver fit": (node("a", NEW), None),
    "its kernel changed and there is an image of its own driver": (
        node("a", NEW, kernel=NEXT_KERNEL),
        image(NEW, NEXT_KERNEL),
    ),
    "its kernel changed and there is none: never to a version that nobody approved": (
        node("a", OLD, kernel=NEXT_KERNEL),
        None,
    ),
    "it has no driver": (node("a", driver_key="none", kernel=NEXT_KERNEL), None),
}


@pytest.mark.parametrize(("one", "expected"), REPAIR.values(), ids=REPAIR.keys())
def test_the_image_that_brings_a_node_back(one, expected):
    assert Catalogue(IMAGES).repair_image(one) == expected


def made_by(recipe, flavour, key):
    return msgspec.structs.replace(image(NEW, KERNEL), key=key * 16, recipe=recipe, flavour=flavour)


BY_OPEN, BY_CLOSED, BROUGHT = made_by("nvidia-open", "open", "c"), made_by("nvidia", "proprietary", "b"), image()

ASKED = {
    "a stack that names no recipe takes any image of its driver": ({}, [BY_OPEN, BY_CLOSED], BY_CLOSED),
    "and one that says no recipe before others": ({}, [BY_OPEN, BY_CLOSED, BROUGHT], BROUGHT),
    "a named recipe": ({"driver_recipe": "nvidia-open"}, [BY_CLOSED, BY_OPEN], BY_OPEN),
    "a named flavour": ({"driver_flavour": "open"}, [BY_CLOSED, BY_OPEN], BY_OPEN),
    "its own image before one that does not say": ({"driver_recipe": "nvidia-open"}, [BROUGHT, BY_OPEN], BY_OPEN),
    "an image that does not say, where there is no other": ({"driver_recipe": "nvidia"}, [BROUGHT, BY_OPEN], BROUGHT),
    "another recipe's never": ({"driver_recipe": "nvidia"}, [BY_OPEN], None),
}


@pytest.mark.parametrize(("asked", "images", "expected"), ASKED.values(), ids=ASKED)
def test_the_image_of_a_recipe(asked, images, expected):
    assert Catalogue(images).required_image(fresh_node("a"), target(**asked)) == expected


def test_another_flavour_of_the_same_version_is_drift():
    catalogue = Catalogue([BY_OPEN, BY_CLOSED])
    on_open = node("a", NEW, driver_key=BY_OPEN.key, revision="")
    wanted = target(driver_recipe="nvidia", driver_flavour="proprietary")
    (found,) = node_drift(on_open, wanted, catalogue).findings
    assert found == Finding(
        reason=R.DRIVER, message=f"The node has driver nvidia-open {NEW}, the stack requires nvidia {NEW}."
    )
    assert catalogue.required_image(on_open, wanted) == BY_CLOSED


def test_a_node_is_brought_back_to_its_own_flavour():
    after = [
        msgspec.structs.replace(one, key=one.key[:8] + "0" * 8, kernel=NEXT_KERNEL) for one in (BY_OPEN, BY_CLOSED)
    ]
    rebooted = node("a", driver_key=BY_OPEN.key, kernel=NEXT_KERNEL)
    assert Catalogue([BY_OPEN, BY_CLOSED, *after]).repair_image(rebooted) == after[0]
    assert Catalogue([BY_OPEN, BY_CLOSED, after[1]]).repair_image(rebooted) is None
