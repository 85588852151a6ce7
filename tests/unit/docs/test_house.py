"""Bounds of the layout that tests/support/house.py measures."""

from tests.support import house


def test_a_package_has_fifteen_files_at_most() -> None:
    """More of them are not found in a minute. The counts of those that are larger may only fall."""
    larger = {package: count for package, count in house.files_by_package().items() if count > 15}
    assert larger == {}


def test_names_of_one_word_become_fewer() -> None:
    assert sum(map(len, house.one_word_functions().values())) <= 24


def test_a_class_name_is_that_of_one_class() -> None:
    assert house.repeated_class_names() == {}


def test_a_file_has_400_lines_at_most() -> None:
    assert house.long_files(400) == {}


def test_the_node_image_is_a_tenth_of_the_package() -> None:
    assert house.lines(house.image_parts.NODE_PARTS) < house.lines(("",)) / 10


def test_the_node_image_has_no_operands() -> None:
    assert house.lines(house.image_parts.NODE_PARTS) < 5_000


def test_the_image_of_the_controller_has_no_laboratory() -> None:
    assert house.lines(house.image_parts.CONTROLLER_PARTS) < 43_000
