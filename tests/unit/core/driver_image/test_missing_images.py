"""What is known of kernels without an image."""

import pytest

from upgrader.core.driver_image.missing_images import (
    DriverSelector,
    build_of,
    code_name,
    read_removed_driver,
    ready_alternatives,
    why_no_image,
)
from upgrader.core.model.fleet import ImageBuild, RemovedDriver
from upgrader.core.model.phases import DriverImagePhase as D

DRIVER = DriverSelector(vendor="nvidia", version="535.1")


def build(name, phase=D.READY, *, version="535.1", kernel="k2", vendor="nvidia", **changes):
    return ImageBuild(name=name, vendor=vendor, version=version, kernel=kernel, phase=phase, **changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("{", None),
        ('{"driver": "k"}', None),
        ('{"driver": "k", "revision": "r", "kernel": "6.1"}', RemovedDriver(driver="k", revision="r", kernel="6.1")),
    ],
)
def test_what_was_kept_is_read_or_is_not_there(text, expected):
    assert read_removed_driver(text) == expected


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("Debian GNU/Linux 12 (bookworm)", "bookworm"),
        ("Ubuntu 22.04.4 LTS", ""),
        ("Red Hat Enterprise Linux CoreOS 416.94 (Plow) x", ""),
        ("", ""),
    ],
)
def test_the_code_name_of_a_distribution(image, name):
    assert code_name(image) == name


def test_of_several_builds_the_one_nearest_to_ready_counts():
    found = [build("a", D.UNBUILDABLE), build("b", D.RETRYING), build("c", D.BUILDING), build("d", kernel="k1")]
    assert build_of(found, DRIVER, "k2") == found[2]
    assert build_of(found, DRIVER, "k9") is None


def test_alternatives_are_ready_and_of_the_same_vendor():
    found = [
        build("a", version="550.1", recipe="nvidia-open"),
        build("b", version="560.1", phase=D.BUILDING),
        build("c", vendor="sim", version="1.0"),
        *(build(f"k{one}", kernel=f"6.1.0-{one}") for one in range(5)),
    ]
    assert ready_alternatives(found, DRIVER, "k2") == (
        "driver nvidia-open 550.1 for this kernel",
        "kernel 6.1.0-0, 6.1.0-1, 6.1.0-2 and 2 more",
    )


def test_where_nothing_is_known_nothing_is_promised():
    assert why_no_image((), DRIVER, "k2") == "There is no Ready DriverImage for nvidia 535.1 on kernel k2."
