"""Which images a stack asks for by itself, and how they are made."""

import msgspec

from tests.support.facts import KERNEL, NEW, OLD, fresh_node, image, node, snapshot, target
from upgrader.core.driver_image.missing_images import DriverSelector, driver_of
from upgrader.core.gpu_stack.image_wishes import ImageRequest, Template, choose_template, find_wishes
from upgrader.core.model.fleet import ImageBuild, RemovedDriver
from upgrader.core.model.phases import DriverImagePhase as D

NEXT = "6.1.0-41-amd64"
HAD, WANTED = DriverSelector(vendor="sim", version=OLD), DriverSelector(vendor="sim", version=NEW)


def build(version=OLD, kernel=KERNEL, phase=D.READY, **changes):
    facts = {"name": f"{version}-{kernel}", "vendor": "sim", "recipe": "sim", "os": "bookworm"}
    return ImageBuild(**{**facts, "version": version, "kernel": kernel, "phase": phase, **changes})


DECLARED = (build(), build(NEW))


def asked(*nodes, builds=DECLARED, ahead=False):
    return find_wishes(snapshot(nodes, builds=tuple(builds)), target(), goal=target(OLD), ahead=ahead)


def test_nothing_where_every_image_is_declared_whatever_became_of_it():
    builds = [build(), build(NEW), build(OLD, NEXT, D.UNBUILDABLE)]
    assert asked(node("a"), node("b", kernel=NEXT), builds=builds, ahead=False) == ()


def test_its_own_driver_for_a_node_with_a_new_kernel_once_for_all_of_them():
    found = asked(node("a", kernel=NEXT, os="bookworm", arch="amd64"), node("b", kernel=NEXT))
    assert found == (ImageRequest(driver=HAD, kernel=NEXT, os="bookworm", arch="amd64"),)


def test_the_driver_that_was_taken_away():
    removed_driver = RemovedDriver(driver=image(NEW).key, revision="r", kernel=NEXT)
    bare = node("a", driver_key="none", kernel=NEXT, removed_driver=removed_driver)
    assert asked(bare) == (ImageRequest(driver=WANTED, kernel=NEXT),)


def test_what_was_approved_for_a_new_node():
    assert asked(fresh_node("a", kernel=NEXT)) == (ImageRequest(driver=HAD, kernel=NEXT),)


def test_the_next_driver_only_where_a_plan_is_to_follow():
    assert asked(node("a"), builds=[build()]) == ()
    assert asked(node("a"), builds=[build()], ahead=True) == (ImageRequest(driver=WANTED, kernel=KERNEL),)


def test_the_kernel_of_the_next_boot():
    assert asked(node("a", pending_kernel=NEXT)) == (ImageRequest(driver=HAD, kernel=NEXT),)


def test_nothing_for_nodes_that_are_left_alone():
    labels = ("nvidia.com/gpu.deploy.driver",)
    left = [node("a", kernel=NEXT, skip=True), node("b", kernel=NEXT, foreign_labels=labels), node("c", kernel="")]
    assert asked(*left) == ()
    assert len(asked(node("b", kernel=NEXT, foreign_labels=labels, adopted=True))) == 1


def test_an_image_is_made_as_the_nearest_one_was():
    wish = ImageRequest(driver=HAD, kernel=NEXT, os="trixie")
    other = build(NEW, recipe="other", os="trixie", name="a")
    assert choose_template([other, build()], wish) == Template(recipe="sim", flavour="", os="trixie", arch="amd64")
    assert choose_template([other], wish) == Template(recipe="other", flavour="", os="trixie", arch="amd64")
    here = msgspec.structs.replace(wish, os="")
    assert choose_template([build(flavour="open", arch="arm64")], here) == Template(
        recipe="sim", flavour="open", os="bookworm", arch="arm64"
    )


def test_where_people_bring_the_images_nobody_knows_how_they_are_made():
    wish = ImageRequest(driver=HAD, kernel=NEXT)
    assert choose_template([build(recipe=""), build(vendor="nvidia")], wish) is None


def test_a_stack_that_names_its_recipe_needs_no_other_image_to_go_by():
    named = DriverSelector(vendor="nvidia", version="535.1", recipe="nvidia-open", flavour="open")
    wish = ImageRequest(driver=named, kernel=NEXT, os="bookworm", arch="amd64")
    assert choose_template([], wish) == Template(recipe="nvidia-open", flavour="open", os="bookworm", arch="amd64")
    assert choose_template([], msgspec.structs.replace(wish, os="")) is None  # nobody says of which distribution
    other = build("535.1", vendor="nvidia", recipe="nvidia", flavour="proprietary", name="a")
    mine = build("550.1", vendor="nvidia", recipe="nvidia-open", flavour="open", os="trixie", name="b")
    assert choose_template([other, mine], msgspec.structs.replace(wish, os="")) == Template(
        recipe="nvidia-open", flavour="open", os="trixie", arch="amd64"
    )


def test_an_image_of_another_flavour_is_no_image_of_the_driver():
    wanted = target(driver_vendor="nvidia", driver_recipe="nvidia-open", driver_flavour="open")
    closed = build(NEW, vendor="nvidia", recipe="nvidia", flavour="proprietary")
    made = find_wishes(snapshot([fresh_node("a")], builds=(closed,)), wanted, goal=wanted, ahead=False)
    assert made == (ImageRequest(driver=driver_of(wanted), kernel=KERNEL),)
    mine = build(NEW, vendor="nvidia", recipe="nvidia-open", flavour="open")
    assert find_wishes(snapshot([fresh_node("a")], builds=(mine,)), wanted, goal=wanted, ahead=False) == ()
    brought = build(NEW, vendor="nvidia", recipe="", flavour="")
    assert find_wishes(snapshot([fresh_node("a")], builds=(brought,)), wanted, goal=wanted, ahead=False) == ()
