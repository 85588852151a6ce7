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


@given(operand=st.sampled_from(Operand), settings=SETTINGS, ours=st.frozensets(st.sampled_from(Operand)))
def test_an_operand_waits_for_ours_before_it_in_their_order_and_for_nobody_else(operand, settings, ours):
    found = [one.operand for one in earlier_operands(operand, settings, ours)]
    places = [list(Operand).index(one) for one in found]
    assert places == sorted(set(places))
    assert all(place < list(Operand).index(operand) for place in places)
    assert set(found) <= ours | {Operand.DRIVER}
    assert (Operand.DRIVER in found) is (operand is not Operand.DRIVER)


@given(settings=SETTINGS, ours=st.frozensets(st.sampled_from(Operand)))
def test_each_looks_for_a_file_of_the_operand_that_it_waits_for(settings, ours):
    for one in earlier_operands(Operand.MONITORING, settings, ours):
        assert one.file.startswith(f"{one.folder}/")
        assert (settings.driver_vendor in one.file) or one.operand is not Operand.DRIVER
