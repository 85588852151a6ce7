import pytest

from upgrader.core.driver_image.image_names import with_registry

NAMES = {
    "nvidia/k8s-device-plugin:v0.20.0": "mirror.example/nvidia/k8s-device-plugin:v0.20.0",
    "plugin:1": "mirror.example/plugin:1",
    "registry.example/plugin:1": "registry.example/plugin:1",
    "registry:5000/plugin:1": "registry:5000/plugin:1",
    "localhost/plugin:1": "localhost/plugin:1",
}


@pytest.mark.parametrize(("named", "found"), NAMES.items())
def test_what_names_no_registry_comes_from_the_one_that_is_set(named, found):
    assert with_registry(named, "mirror.example") == found


@pytest.mark.parametrize("named", NAMES)
def test_without_one_a_name_stays_as_it_is(named):
    assert with_registry(named, "") == named
