import msgspec
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.node_protocol.boot_reports import newest_report
from upgrader.core.node_protocol.gpu_features import GpuLabelView, GpuRecord, GpuReport, decide, read_record

REPORT = GpuReport(boot_id="b", uptime=1.0, version="535.261.03", devices=8)
NAMES = ("vendor/count", "vendor/product", "vendor/version")
LABELS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["8", "false", "foreign", "535"]))
RECORDS = st.none() | st.builds(GpuRecord, stack=st.sampled_from(["a", "b"]), labels=LABELS)
VIEWS = st.builds(
    GpuLabelView,
    stack=st.just("a"),
    labels=LABELS,
    wanted=st.booleans(),
    record=RECORDS,
    claimants=st.sampled_from([(), ("b",)]),
    found=st.none() | LABELS,
)


def after(view):
    """The view once what was decided is written."""
    decision = decide(view)
    if not decision.writes:
        return view
    labels = {**view.labels, **decision.labels}
    kept = {name: value for name, value in labels.items() if value is not None}
    return msgspec.structs.replace(view, labels=kept, record=decision.record)


@given(VIEWS)
def test_decided_again_from_what_it_wrote_it_writes_nothing(view):
    assert not decide(after(view)).writes


@given(VIEWS)
def test_what_somebody_else_wrote_is_never_touched(view):
    recorded = view.record.labels if view.record is not None else {}
    foreign = {name: value for name, value in view.labels.items() if recorded.get(name) != value}
    assert foreign.items() <= after(view).labels.items()


@given(VIEWS)
def test_without_feature_discovery_no_recorded_label_stays(view):
    end = after(msgspec.structs.replace(view, wanted=False))
    assert end.record is None or end.record.stack != "a"


@given(VIEWS)
def test_what_another_stack_wrote_stays_while_that_has_the_node_or_we_do_not_want_it(view):
    if view.record is not None and view.record.stack == "b" and ("b" in view.claimants or not view.wanted):
        assert after(view) == view


def test_the_last_report_of_this_boot_counts():
    later, other = msgspec.structs.replace(REPORT, uptime=2.0), msgspec.structs.replace(REPORT, boot_id="c", uptime=9.0)
    assert newest_report([REPORT, later, other], "b") == later
    assert newest_report([other], "b") is None


def test_a_record_is_read_back():
    record = GpuRecord(stack="a", labels={"x": "y"})
    assert read_record(msgspec.json.encode(record).decode()) == record
    assert read_record("{") is None
