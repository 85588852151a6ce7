import msgspec
import pytest

from upgrader.core.node_protocol.node_features import PREFIX, FeatureRecord, FeatureReport, feature_labels
from upgrader.core.node_protocol.node_labels import LabelDecision, LabelView, NodeLabelState, decide

KERNEL = "6.12.94+deb13-amd64"
REPORT = FeatureReport(boot_id="boot-2", uptime=5.0, kernel=KERNEL, os_id="debian", os_version="13")
LABELS = feature_labels(REPORT)
FULL, NAME = f"{PREFIX}kernel-version.full", f"{PREFIX}system-os_release.ID"
VIEW = LabelView(stack="pool-a", boot_id="boot-2", kernel=KERNEL, labels={}, wanted=True, report=REPORT)
OLD_LABELS = {**LABELS, FULL: "6.12.90_deb13-amd64", f"{PREFIX}pci-10de.present": "true"}
WRITTEN = FeatureRecord(stack="pool-a", boot_id="boot-2", labels=LABELS)
EARLIER = FeatureRecord(stack="pool-a", boot_id="boot-1", labels=OLD_LABELS)
NFD_SAYS = "node-feature-discovery labels the node, according to its annotations"
WAITS = "its pod has not reported yet"


def view(**changes):
    return msgspec.structs.replace(VIEW, **changes)


def left(labels, **changes):
    return LabelDecision(
        **{"standing": NodeLabelState.NOT_LABELLED, "writes": True, "labels": dict.fromkeys(labels), **changes}
    )


TABLE = {
    "a node without any gets all": (
        view(),
        LabelDecision(standing=NodeLabelState.LABELLED, writes=True, labels=LABELS, record=WRITTEN),
    ),
    "a node that has them gets nothing": (
        view(labels=LABELS, record=WRITTEN),
        LabelDecision(standing=NodeLabelState.LABELLED, record=WRITTEN),
    ),
    "after a reboot into another kernel what differs is written, and what is no more goes": (
        view(labels={**OLD_LABELS, "x": "y"}, record=EARLIER),
        LabelDecision(
            standing=NodeLabelState.LABELLED,
            writes=True,
            labels={FULL: LABELS[FULL], f"{PREFIX}pci-10de.present": None},
            record=WRITTEN,
        ),
    ),
    "after a reboot into the same the boot is written": (
        view(labels=LABELS, record=FeatureRecord(stack="pool-a", boot_id="boot-1", labels=LABELS)),
        LabelDecision(standing=NodeLabelState.LABELLED, writes=True, record=WRITTEN),
    ),
    "before the pod has told anything nothing is written": (
        view(report=None, labels=OLD_LABELS, record=EARLIER),
        LabelDecision(standing=NodeLabelState.WAITING, message=WAITS),
    ),
    "what the pod could not read is said": (
        view(report=None, fault="/etc/os-release cannot be read"),
        LabelDecision(standing=NodeLabelState.UNREADABLE, message="/etc/os-release cannot be read"),
    ),
    "an earlier failure on the same boot counts for nothing": (
        view(fault="/etc/os-release cannot be read"),
        LabelDecision(standing=NodeLabelState.LABELLED, writes=True, labels=LABELS, record=WRITTEN),
    ),
    "the old kernel is still in the Node": (
        view(kernel="6.1.0"),
        LabelDecision(
            standing=NodeLabelState.DISAGREES, message=f"its pod reports kernel {KERNEL}, its kubelet reports 6.1.0"
        ),
    ),
    "NFD runs and no label is recorded": (
        view(nfd=frozenset()),
        LabelDecision(standing=NodeLabelState.NFD, message=NFD_SAYS),
    ),
    "NFD came: the labels that it keeps are its own, the other recorded labels are removed": (
        view(labels=LABELS, record=WRITTEN, nfd=frozenset({FULL, "x"})),
        left(LABELS.keys() - {FULL}, standing=NodeLabelState.NFD, message=NFD_SAYS),
    ),
    "NFD came and wrote another value": (
        view(labels={**LABELS, FULL: "6.9"}, record=WRITTEN, nfd=frozenset()),
        left(LABELS.keys() - {FULL}, standing=NodeLabelState.NFD, message=NFD_SAYS),
    ),
    "NFD runs on a node of no stack that labels": (
        view(wanted=False, nfd=frozenset()),
        LabelDecision(standing=NodeLabelState.NOT_LABELLED),
    ),
    "no longer wanted: recorded labels are removed, foreign labels stay": (
        view(wanted=False, labels={**LABELS, "x": "y", FULL: "mine"}, record=WRITTEN, report=None),
        left(LABELS.keys() - {FULL}),
    ),
    "another stack labels it": (
        view(held_by="pool-b", labels=LABELS, record=msgspec.structs.replace(WRITTEN, stack="pool-b")),
        LabelDecision(standing=NodeLabelState.OTHER_STACK, message="GpuStack pool-b labels the node"),
    ),
    "another stack labelled it, and left": (
        view(labels=LABELS, record=msgspec.structs.replace(WRITTEN, stack="pool-b")),
        LabelDecision(standing=NodeLabelState.LABELLED, writes=True, record=WRITTEN),
    ),
    "a label that another client wrote before is foreign": (
        view(labels={NAME: "mine"}),
        LabelDecision(
            standing=NodeLabelState.LABELLED,
            message=f"managed by another program: {NAME}",
            writes=True,
            labels={name: value for name, value in LABELS.items() if name != NAME},
            record=msgspec.structs.replace(WRITTEN, labels={k: v for k, v in LABELS.items() if k != NAME}),
        ),
    ),
    "a label that another client changed later is foreign from then on": (
        view(labels={**LABELS, NAME: "mine"}, record=WRITTEN),
        LabelDecision(
            standing=NodeLabelState.LABELLED,
            message=f"managed by another program: {NAME}",
            writes=True,
            record=msgspec.structs.replace(WRITTEN, labels={k: v for k, v in LABELS.items() if k != NAME}),
        ),
    ),
    "what somebody took away comes back": (
        view(labels={k: v for k, v in LABELS.items() if k != NAME}, record=WRITTEN),
        LabelDecision(standing=NodeLabelState.LABELLED, writes=True, labels={NAME: "debian"}, record=WRITTEN),
    ),
    "a record that nobody can read": (
        view(record_unreadable=True, labels=LABELS),
        LabelDecision(
            standing=NodeLabelState.RECORD_UNREADABLE,
            message="annotation gpu-upgrader.io/node-features cannot be read; remove it, and the labels that the "
            "operator wrote",
        ),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), TABLE.values(), ids=TABLE)
def test_what_becomes_of_the_labels_of_a_node(seen, expected):
    assert decide(seen) == expected
