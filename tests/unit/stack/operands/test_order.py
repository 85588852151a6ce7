from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.stack.operands.order import earlier_operands
from upgrader.stack.vendors import load_vendors

SETTINGS = st.builds(
    PluginSettings,
    vendor=st.sampled_from(sorted(load_vendors())),
    driver_vendor=st.sampled_from(["nvidia", "sim"]),
    resource_name=st.just("nvidia.com/gpu"),
    cdi=st.booleans(),
)


@given(operand=st.sampled_from(Operand), settings=SETTINGS, managed=st.frozensets(st.sampled_from(Operand)))
def test_an_operand_waits_for_the_managed_operands_before_it_and_for_no_other(operand, settings, managed):
    found = [one.operand for one in earlier_operands(operand, settings, managed)]
    places = [list(Operand).index(one) for one in found]
    assert places == sorted(set(places))
    assert all(place < list(Operand).index(operand) for place in places)
    assert set(found) <= managed | {Operand.DRIVER}
    assert (Operand.DRIVER in found) is (operand is not Operand.DRIVER)


@given(settings=SETTINGS, managed=st.frozensets(st.sampled_from(Operand)))
def test_each_looks_for_a_file_of_the_operand_that_it_waits_for(settings, managed):
    for one in earlier_operands(Operand.MONITORING, settings, managed):
        assert one.file.startswith(f"{one.folder}/")
        assert (settings.driver_vendor in one.file) or one.operand is not Operand.DRIVER
