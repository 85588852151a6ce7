"""Which driver a service fits, and the label with the services of an image."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.errors import ConfigurationError
from upgrader.core.node_protocol.driver_services import DriverService, fits_driver, parse_services

VERSIONS = st.from_regex(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{2})?", fullmatch=True)


@given(service=st.sampled_from(DriverService), version=VERSIONS, driver=VERSIONS)
def test_a_service_fits_its_own_version_and_persistenced_all_of_its_branch(service, version, driver):
    same_branch = version.split(".")[0] == driver.split(".")[0]
    expected = same_branch if service is DriverService.PERSISTENCED else version == driver
    assert fits_driver(service, version, driver) is expected
    assert fits_driver(service, version, version)


@given(st.sets(st.sampled_from(DriverService)))
def test_a_label_is_read_as_it_is_written(services):
    assert parse_services(",".join(sorted(services))) == tuple(sorted(services))


@pytest.mark.parametrize("text", ["dcgm", "imex,", ",", "imex, persistenced", "IMEX", "x" * 1_000_000])
def test_an_unknown_service_is_an_error_and_not_skipped(text):
    with pytest.raises(ConfigurationError) as raised:
        parse_services(text)
    assert len(str(raised.value)) < 1000
