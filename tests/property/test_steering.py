"""The laws of steering, on templates of every sort and nodes of every sort: each test is one sentence."""

from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.workloads.placement import MAINTENANCE, REVISION, Placement
from upgrader.core.workloads.placement import steer_template as steer

LABELS = ("zone", "gpu", REVISION)
VALUES = ("a", "b", "c")


def expressions(keys):
    values = st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True)
    listed = st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(keys),
        st.sampled_from(("In", "NotIn")),
        values,
    )
    bare = st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(keys),
        st.sampled_from(("Exists", "DoesNotExist")),
    )
    return listed | bare


USERS = expressions(("zone", "gpu"))
FIELDS = st.just({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]})
TERMS = st.lists(
    st.one_of(
        st.builds(lambda found: {"matchExpressions": found}, st.lists(USERS, max_size=3)),
        st.builds(lambda found, fields: {"matchExpressions": found, **fields}, st.lists(USERS, max_size=2), FIELDS),
        FIELDS,
        st.just({}),
    ),
    max_size=3,
)
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(("nvidia.com/gpu", "spot")), "operator": st.just("Exists")},
        optional={"effect": st.just("NoSchedule")},
    ),
    max_size=3,
)


@st.composite
def templates(draw):
    spec = {"containers": [{"name": "trainer"}]}
    if draw(st.booleans()):
        spec["tolerations"] = draw(TOLERATIONS)
    if draw(st.booleans()):
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        preferred = "preferredDuringSchedulingIgnoredDuringExecution"
        terms = draw(TERMS)
        affinity = {preferred: [{"weight": 1, "preference": {"matchExpressions": [draw(USERS)]}}]}
        if terms:
            affinity[required] = {"nodeSelectorTerms": terms}
        spec["affinity"] = {"nodeAffinity": affinity, "podAffinity": {"kept": True}}
    return spec


LEFT = st.lists(st.sampled_from(VALUES), max_size=2)
SOME_LEFT = st.lists(st.sampled_from(VALUES), min_size=1, max_size=2)
GROUPS = st.sampled_from(("", "c-1", "c-2"))
NODES = st.dictionaries(st.sampled_from(LABELS), st.sampled_from(VALUES))


def steered(spec, left, group):
    """The template's spec after the restart."""
    return steer({"spec": spec}, Placement(left_behind=tuple(left), group=group))["spec"]


def terms_of(spec):
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")


def fits(spec, node):
    """The scheduler's rule: terms are ORed, what is in a term is ANDed, and an empty term matches nothing."""
    terms = terms_of(spec)
    return terms is None or any(any(term.values()) and all(_holds(one, node) for one in _all(term)) for term in terms)


def _all(term):
    return [*term.get("matchExpressions", []), *term.get("matchFields", [])]


def _holds(one, node):
    value = "node-1" if one["key"] == "metadata.name" else node.get(one["key"])
    match one["operator"]:
        case "In":
            return value in one["values"]
        case "NotIn":
            return value not in one["values"]
        case "Exists":
            return value is not None
        case _:
            return value is None


def steering_expressions(spec):
    return [one for term in terms_of(spec) or [] for one in term.get("matchExpressions", []) if one["key"] == REVISION]


@given(spec=templates(), left=LEFT, group=GROUPS, node=NODES)
def test_a_gang_fits_a_node_exactly_if_it_did_before_and_the_revision_is_not_left_behind(spec, left, group, node):
    assert fits(steered(spec, left, group), node) == (fits(spec, node) and node.get(REVISION) not in left)


@given(spec=templates(), left=LEFT, group=GROUPS)
def test_steering_twice_is_steering_once(spec, left, group):
    once = steered(spec, left, group)
    assert steered(once, left, group) == once


@given(spec=templates(), first=LEFT, second=LEFT, groups=st.tuples(GROUPS, GROUPS), node=NODES)
def test_a_later_restart_replaces_what_an_earlier_one_put_there(spec, first, second, groups, node):
    later = steered(steered(spec, first, groups[0]), second, groups[1])
    directly = steered(spec, second, groups[1])
    assert later.get("tolerations", []) == directly.get("tolerations", [])
    assert fits(later, node) == fits(directly, node)
    assert steering_expressions(later) == steering_expressions(directly)


@given(spec=templates(), left=SOME_LEFT, group=GROUPS)
def test_a_term_has_one_steering_expression_and_the_tolerations_one_toleration_at_most(spec, left, group):
    after = steered(steered(spec, ["c"], "c-9"), left, group)
    per_term = [[one["key"] for one in term.get("matchExpressions", [])].count(REVISION) for term in terms_of(after)]
    assert max(per_term) <= 1
    mine = [one for one in after.get("tolerations", []) if one["key"] == MAINTENANCE]
    assert mine == (
        [{"key": MAINTENANCE, "operator": "Equal", "value": group, "effect": "NoSchedule"}] if group else []
    )


@given(spec=templates(), left=LEFT, group=GROUPS)
def test_all_that_is_the_users_is_kept(spec, left, group):
    after = steered(spec, left, group)
    assert after["containers"] == spec["containers"]
    assert [one for one in after.get("tolerations", []) if one["key"] != MAINTENANCE] == spec.get("tolerations", [])
    if "affinity" in spec:
        assert after["affinity"]["podAffinity"] == spec["affinity"]["podAffinity"]
        preferred = "preferredDuringSchedulingIgnoredDuringExecution"
        assert after["affinity"]["nodeAffinity"][preferred] == spec["affinity"]["nodeAffinity"][preferred]
    for term, before in zip(terms_of(after) or [], terms_of(spec) or [], strict=False):
        kept = [one for one in term.get("matchExpressions", []) if one["key"] != REVISION]
        assert kept == before.get("matchExpressions", [])
