"""Laws of the feature labels: one writer, nothing written twice, nothing of others touched, no false disagreement."""

import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.facts import NEW, node, target
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.gpu_stack.drift import DriftReason, node_drift
from upgrader.core.node_protocol.node_features import (
    ANNOTATION_NFD,
    PREFIX,
    FeatureRecord,
    FeatureReport,
    feature_labels,
    kept_by_nfd,
    label_value,
)
from upgrader.core.node_protocol.node_labels import LabelView, decide

KERNEL = f"{PREFIX}kernel-version.full"
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
"""What the API server takes as a label's value, beside its length (k8s.io/apimachinery, validation)."""

kernels = st.one_of(
    st.from_regex(r"[1-9]\.[0-9]{1,2}(\.[0-9]{1,3})?([-+~.][a-z0-9+~._-]{0,20})?", fullmatch=True),
    st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=80),
)
texts = st.one_of(st.sampled_from(["", "debian", "13", "24.04", "rolling release"]), st.text(max_size=70))
devices = st.lists(st.from_regex(r"(03|12|0b|02)[0-9a-f]{2}_[0-9a-f]{4}", fullmatch=True), max_size=3).map(tuple)
reports = st.builds(
    FeatureReport,
    boot_id=st.sampled_from(["boot-1", "boot-2"]),
    uptime=st.floats(0, 100),
    kernel=kernels,
    os_id=texts,
    os_version=texts,
    pci=devices,
)


@st.composite
def views(draw):
    """A node with labels of a stack as they were written, changed or taken away, and with labels of others."""
    report, before = draw(reports), draw(reports)
    written = feature_labels(before)
    there = {name: draw(st.sampled_from([value, "mine"])) for name, value in written.items() if draw(st.booleans())}
    foreign = draw(
        st.dictionaries(st.sampled_from(["zone", f"{PREFIX}cpu-x", *feature_labels(report)]), st.just("his"))
    )
    listed = draw(st.none() | st.frozensets(st.sampled_from([*written, *foreign, "other"])))
    record = FeatureRecord(stack="a", boot_id=before.boot_id, labels=written) if draw(st.booleans()) else None
    return LabelView(
        stack="a",
        boot_id=report.boot_id,
        kernel=draw(st.sampled_from([report.kernel, before.kernel])),
        labels=there | foreign,
        wanted=draw(st.booleans()),
        record=record,
        nfd=listed,
        report=draw(st.sampled_from([report, None])),
        held_by=draw(st.sampled_from(["", "", "b"])),
    )


def after(view, decision):
    """The node when the decision was written."""
    if not decision.writes:
        return view
    changed = {**view.labels, **decision.labels}
    labels = {name: value for name, value in changed.items() if value is not None}
    return msgspec.structs.replace(view, labels=labels, record=decision.record)


@given(report=reports)
def test_every_label_is_one_that_the_api_server_takes(report):
    for name, value in feature_labels(report).items():
        assert LABEL_VALUE.fullmatch(value)
        assert len(value) <= 63
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", name.removeprefix(PREFIX))


@given(view=views())
def test_what_was_written_is_not_written_again(view):
    again = decide(after(view, decide(view)))
    assert not again.writes
    assert again.labels == {}


@given(view=views())
def test_where_another_writes_we_write_no_label(view):
    if view.nfd is not None or view.held_by:
        assert [value for value in decide(view).labels.values() if value is not None] == []


@given(view=views())
def test_a_label_is_changed_or_taken_only_where_it_is_as_we_wrote_it(view):
    recorded = view.record.labels if view.record is not None else {}
    touched = decide(view).labels.keys() & view.labels.keys()
    assert [name for name in touched if view.labels[name] != recorded.get(name)] == []


@given(view=views())
def test_what_nfd_keeps_is_never_taken_from_it(view):
    assert decide(view).labels.keys() & (view.nfd or frozenset()) == frozenset() or view.nfd is None


@given(view=views())
def test_when_the_stack_leaves_none_of_its_labels_stays(view):
    gone = after(view, decide(msgspec.structs.replace(view, wanted=False, held_by="")))
    kept = view.nfd or frozenset()
    assert gone.record is None
    if view.record is not None:
        assert [k for k, v in view.record.labels.items() if gone.labels.get(k) == v and k not in kept] == []


class Shared:
    """A Node that NFD and a stack both label, each by whole passes; NFD's are one patch, as its master's."""

    def __init__(self):
        self.labels, self.marks, self.record = {}, {}, None
        self.boot, self.kernel = 0, "6.1.0"
        self.nfd, self.auto = False, True

    def nfds_pass(self):
        """Whether it wrote. Labels that it kept and does not make any more are taken away."""
        if not self.nfd:
            return False
        made = {KERNEL: label_value(self.kernel), f"{PREFIX}cpu-x": "true"}
        before = (dict(self.labels), dict(self.marks))
        kept = [f"{PREFIX}{name}" for name in self.marks.get(ANNOTATION_NFD, "").split(",") if name]
        self.labels = {k: v for k, v in self.labels.items() if k not in kept} | made
        self.marks[ANNOTATION_NFD] = ",".join(sorted(name.removeprefix(PREFIX) for name in made))
        return before != (self.labels, self.marks)

    def our_pass(self):
        """Whether we wrote."""
        report = FeatureReport(boot_id=str(self.boot), uptime=1, kernel=self.kernel, os_id="debian", os_version="13")
        view = LabelView(
            stack="a",
            boot_id=report.boot_id,
            kernel=self.kernel,
            labels=self.labels,
            wanted=self.auto,
            record=self.record,
            nfd=kept_by_nfd(self.marks),
            report=report,
        )
        decision = decide(view)
        changed = after(view, decision)
        self.labels, self.record = dict(changed.labels), changed.record
        return decision.writes

    def pruned(self):
        """NFD is removed with its prune job."""
        self.nfd = False
        for name in self.marks.pop(ANNOTATION_NFD, "").split(","):
            self.labels.pop(f"{PREFIX}{name}", None)

    def happen(self, what):
        match what:
            case "NFD looks":
                self.nfds_pass()
            case "we look":
                self.our_pass()
            case "NFD is installed":
                self.nfd = True
            case "NFD is removed":
                self.pruned()
            case "it reboots":
                self.boot, self.kernel = self.boot + 1, f"6.1.{self.boot}+deb13"
            case "switched on":
                self.auto = True
            case "switched off":
                self.auto = False
            case "a person edits":
                self.labels[KERNEL] = "mine"


EVENTS = (
    *("NFD looks", "we look", "NFD is installed", "NFD is removed"),
    *("it reboots", "switched on", "switched off", "a person edits"),
)


@given(events=st.lists(st.sampled_from(EVENTS), max_size=20), stack_first=st.booleans())
def test_whatever_happened_both_come_to_rest_after_one_look_each(events, stack_first):
    node = Shared()
    for event in events:
        node.happen(event)
    looks = [node.our_pass, node.nfds_pass] if stack_first else [node.nfds_pass, node.our_pass]
    for look in (*looks, node.our_pass):
        look()
    assert [look() for look in looks * 2] == [False] * 4
    assert node.record is None or (node.auto and not node.nfd)
    if node.nfd:
        assert node.labels[KERNEL] == label_value(node.kernel)
    elif not node.auto:
        assert node.labels.get(KERNEL) in {None, "mine"}


def disagreements(kernel, label):
    found = node_drift(node("a", NEW, kernel=kernel, kernel_label=label), target(), Catalogue(()))
    return [one for one in found.findings if one.reason is DriftReason.KERNEL_LABEL_DISAGREES]


@given(kernel=kernels)
def test_an_escaped_label_never_disagrees_with_its_kernel(kernel):
    assert (
        disagreements(kernel, feature_labels(FeatureReport(boot_id="b", uptime=0, kernel=kernel)).get(KERNEL, "")) == []
    )
    assert disagreements(kernel, label_value(kernel)) == []


@given(kernel=kernels, other=kernels)
def test_a_label_of_another_kernel_always_does(kernel, other):
    label = label_value(other)
    if label not in {"", kernel, label_value(kernel)}:
        assert len(disagreements(kernel, label)) == 1
