"""Bounds of the layout that tests/support/house.py measures."""

from tests.support import house


def test_a_package_has_fifteen_files_at_most() -> None:
    """More of them are not found in a minute. The counts of those that are larger may only fall."""
    larger = {package: count for package, count in house.files_by_package().items() if count > 15}
    assert larger == {}


def test_functions_with_names_of_one_word_are_entry_points_and_decisions() -> None:
    """`main` of a command, `decide` of a state machine, and two that stand by themselves."""
    others = {
        path: [name for name in names if name not in {"main", "decide"}]
        for path, names in house.one_word_functions().items()
    }
    assert {path: names for path, names in others.items() if names} == {
        "upgrader/process/run.py": ["run"],
        "upgrader/workload.py": ["serve"],
    }


def test_a_class_name_is_that_of_one_class() -> None:
    assert house.repeated_class_names() == {}


def test_a_file_has_400_lines_at_most() -> None:
    assert house.long_files(400) == {}


def test_the_node_image_is_a_seventh_of_the_package() -> None:
    """Every node stores it. With the survey, the fingerprint and the checks of GPUs; without operands."""
    assert house.lines(house.image_parts.NODE_PARTS) < house.lines(("",)) / 7


def test_the_image_of_the_controller_has_no_laboratory() -> None:
    assert house.lines(house.image_parts.CONTROLLER_PARTS) < 45_000
