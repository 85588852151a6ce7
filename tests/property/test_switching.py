"""The laws of stopping and restarting, for every kind of owner and any spec: each test is one sentence."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from tests.support.owners import owner
from upgrader.core.checkpoint_request.owner_state import owner_facts
from upgrader.core.patches import merge_patch, value_at, values_at, with_value
from upgrader.core.workloads.owner_kinds import OWNERS, Switch
from upgrader.core.workloads.placement import MAINTENANCE, REVISION, Placement
from upgrader.core.workloads.suspend_patches import STOPPED, is_off, record_of, restart_patch, stop_patch
from upgrader_dev.simulated.apiserver.objects import apply_merge_patch

NAMES = st.text(alphabet="abcdef-", min_size=1, max_size=12)
VALUES = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
PLACEMENTS = st.none() | st.builds(
    Placement,
    left_behind=st.lists(st.sampled_from(("old", "older")), max_size=2).map(tuple),
    settled=st.booleans(),
    group=st.sampled_from(("", "c-1")),
)
ON = {Switch.SUSPEND: (False, None), Switch.DEACTIVATE: (True, None), Switch.REPLICAS: (1, 2, 7, None)}


@st.composite
def owners(draw):
    """An owner of any kind that is on, with anything beside what we read."""
    row = draw(st.sampled_from(OWNERS))
    annotations = draw(st.dictionaries(NAMES, st.text(max_size=5), min_size=1, max_size=2))
    body = owner(row, uid="u1", annotations=annotations)
    body["spec"] |= {f"x-{name}": value for name, value in draw(OBJECTS).items()}
    body["status"] = {"state": {"phase": "Running"}} if row.switch is Switch.COMMAND else draw(OBJECTS)
    if row.field:
        body = with_value(body, row.field, draw(st.sampled_from(ON[row.switch])))
    return row, body


def stopped(row, body):
    """As the API server has it after the stop, and after Volcano's controller has done what it was told."""
    after = apply_merge_patch(body, stop_patch(row, body, "plan", "request"))
    return with_value(after, row.state, "Aborted") if row.switch is Switch.COMMAND else after


def restarted(row, body, placement):
    after = apply_merge_patch(body, restart_patch(row, body, placement))
    return with_value(after, row.state, "Running") if row.switch is Switch.COMMAND else after


@given(owners(), st.none() | st.just(Placement()))
def test_a_stop_and_a_restart_leave_an_owner_as_it_was(found, placement):
    row, body = found
    before = copy.deepcopy(body)
    assert restarted(row, stopped(row, body), placement) == before
    assert body == before, "and nothing is changed in place"


@given(owners())
def test_a_stop_is_one_patch_with_its_record(found):
    row, body = found
    off = stopped(row, body)
    record = record_of(off["metadata"]["annotations"])
    assert (record.plan, record.request) == ("plan", "request")
    assert record.previous == (value_at(body, row.field) if row.field else None)
    facts = owner_facts(row, off, "u1", 2)
    assert (facts.suspended, facts.stopped_by) == (True, "request")
    assert not is_off(row, body)


@given(owners(), PLACEMENTS)
def test_no_record_outlives_a_restart_whoever_switched_it_on(found, placement):
    row, body = found
    off = stopped(row, body)
    resumed = with_value(off, row.field, ON[row.switch][0]) if row.field else with_value(off, row.state, "Running")
    for one in (off, resumed):
        on = restarted(row, one, placement)
        assert STOPPED not in on["metadata"]["annotations"]
        assert not is_off(row, on)
    assert value_at(restarted(row, resumed, placement), row.field or row.state) == value_at(
        resumed, row.field or row.state
    )


@given(owners())
def test_what_somebody_else_switched_off_is_not_switched_on(found):
    row, body = found
    switched_off = with_value(body, row.field, row.off_value) if row.field else with_value(body, row.state, "Aborted")
    assert restart_patch(row, switched_off, Placement(group="c-1")) == {}
    facts = owner_facts(row, switched_off, "u1", 2)
    assert (facts.suspended, facts.stopped_by) == (True, "")


@given(owners(), PLACEMENTS)
def test_a_restart_steers_every_template_and_changes_nothing_else(found, placement):
    row, body = found
    on = restarted(row, stopped(row, body), placement)
    steered = [one for path in row.templates for one in values_at(on, path)]
    for one in steered if placement is not None else ():
        keys = [toleration["key"] for toleration in one["spec"].get("tolerations", [])]
        assert keys == ([MAINTENANCE] if placement.group else [])
        wanted = placement.settled or bool(placement.left_behind)
        assert (REVISION in str(one["spec"].get("affinity", {}))) == wanted
    plain = restarted(row, stopped(row, on), Placement())
    for path in row.templates:
        for one in values_at(plain, path):
            one["spec"].pop("tolerations", None)
            one["spec"].pop("affinity", None)
    assert plain == body


@given(OBJECTS, OBJECTS)
def test_a_difference_makes_one_object_of_another(before, after):
    patch = merge_patch(before, after)
    assert apply_merge_patch(before, patch) == after
    assert (patch == {}) == (before == after and str(before) == str(after)) or before == after
