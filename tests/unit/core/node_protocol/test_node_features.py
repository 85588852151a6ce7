import pytest

from upgrader.core.node_protocol.boot_reports import newest_report
from upgrader.core.node_protocol.node_features import (
    FeatureReport,
    feature_labels,
    kept_by_nfd,
    label_value,
    pending_kernel,
    read_record,
    same_kernel,
)

P = "feature.node.kubernetes.io/"
OS = "system-os_release."


def report(kernel="6.1.0", **changes):
    return FeatureReport(**{"boot_id": "boot-1", "uptime": 5.0, "kernel": kernel, **changes})


KERNELS = {
    "the parts of a kernel": (
        "6.1.0-47-amd64",
        {"full": "6.1.0-47-amd64", "major": "6", "minor": "1", "revision": "0"},
    ),
    "a plus is escaped; as in NFD a name that goes on without a dash has no parts": (
        "6.12.94+deb13-amd64",
        {"full": "6.12.94_deb13-amd64"},
    ),
    "a plus behind the dash leaves the parts": (
        "6.0.10-100+123.x86_64~",
        {"full": "6.0.10-100_123.x86_64", "major": "6", "minor": "0", "revision": "10"},
    ),
    "what ends in a plus ends before it": (
        "6.12.94+",
        {"full": "6.12.94", "major": "6", "minor": "12", "revision": "94"},
    ),
    "a part that is missing is empty": ("6.8", {"full": "6.8", "major": "6", "minor": "8", "revision": ""}),
    "a release candidate": ("6.0.0-rc1", {"full": "6.0.0-rc1", "major": "6", "minor": "0", "revision": "0"}),
    "a name that is too long for a label is left out, its parts are not": (
        "6.1.0-" + "a" * 60,
        {"major": "6", "minor": "1", "revision": "0"},
    ),
    "no numbers": ("linux", {"full": "linux"}),
}


@pytest.mark.parametrize(("kernel", "expected"), KERNELS.values(), ids=KERNELS)
def test_the_labels_of_a_kernel_are_those_of_nfd(kernel, expected):
    assert feature_labels(report(kernel)) == {f"{P}kernel-version.{part}": value for part, value in expected.items()}


RELEASES = {
    "Debian": ("debian", "13", {"ID": "debian", "VERSION_ID": "13", "VERSION_ID.major": "13"}),
    "Ubuntu": (
        "ubuntu",
        "24.04",
        {"ID": "ubuntu", "VERSION_ID": "24.04", "VERSION_ID.major": "24", "VERSION_ID.minor": "04"},
    ),
    "three parts": (
        "rhcos",
        "9.4.2024",
        {"ID": "rhcos", "VERSION_ID": "9.4.2024", "VERSION_ID.major": "9", "VERSION_ID.minor": "4"},
    ),
    "no version, as of a rolling release": ("arch", "", {"ID": "arch"}),
    "what is no label value is left out": ("strange os", "13+1", {}),
    "digits of other alphabets are no numbers": ("x", "१", {"ID": "x"}),
}


@pytest.mark.parametrize(("os_id", "version", "expected"), RELEASES.values(), ids=RELEASES)
def test_the_labels_of_a_distribution_are_those_of_nfd(os_id, version, expected):
    found = feature_labels(report(os_id=os_id, os_version=version))
    assert {k: v for k, v in found.items() if OS in k} == {f"{P}{OS}{k}": v for k, v in expected.items()}


def test_a_device_that_counts_has_nfds_name_and_nvidias():
    found = feature_labels(report(pci=("0302_10de", "1200_1da3", "0b40_8086", "0200_15b3", "0300_10de")))
    assert {name for name in found if "pci" in name} == {
        f"{P}pci-{device}.present"
        for device in ("0302_10de", "0300_10de", "10de", "1200_1da3", "1da3", "0b40_8086", "8086")
    }
    assert {value for name, value in found.items() if "pci" in name} == {"true"}


ANNOTATIONS = {
    "none": ({}, None),
    "those of others": ({"example.com/a": "b", "xnfd.node.kubernetes.io/feature-labels": "a"}, None),
    "its labels": (
        {"nfd.node.kubernetes.io/feature-labels": "cpu-x,kernel-version.full,vendor.io/y"},
        frozenset({f"{P}cpu-x", f"{P}kernel-version.full", "vendor.io/y"}),
    ),
    "several instances": (
        {"nfd.node.kubernetes.io/feature-labels": "a", "two.nfd.node.kubernetes.io/feature-labels": "b"},
        frozenset({f"{P}a", f"{P}b"}),
    ),
    "it runs and keeps no label": ({"nfd.node.kubernetes.io/taints": "x"}, frozenset()),
    "it keeps an empty list": ({"nfd.node.kubernetes.io/feature-labels": ""}, frozenset()),
}


@pytest.mark.parametrize(("annotations", "expected"), ANNOTATIONS.values(), ids=ANNOTATIONS)
def test_nfd_is_known_by_its_annotations(annotations, expected):
    assert kept_by_nfd(annotations) == expected


def test_of_several_pods_on_one_boot_the_last_reading_counts():
    before, after, earlier = report("a", uptime=5.0), report("b", uptime=6.0), report("c", boot_id="boot-0", uptime=9.0)
    assert newest_report([after, earlier, before], "boot-1") == after
    assert newest_report([earlier], "boot-1") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stack": "a"}', '{"stack": "a", "bootId": 3, "labels": {}}'])
def test_a_record_that_cannot_be_read_is_none(text):
    assert read_record(text) is None


def test_a_label_stands_for_its_kernel_and_for_no_other():
    kernel = "6.12.94+deb13-amd64"
    assert label_value(kernel) == "6.12.94_deb13-amd64"
    assert same_kernel("6.12.94_deb13-amd64", kernel)
    assert same_kernel("6.1.0", "6.1.0")
    assert not same_kernel("6.12.95_deb13-amd64", kernel)
    assert not same_kernel("6.12.94", kernel)


PENDING = {
    "a newer one of the same sort": (("6.1.0-50-amd64", "6.1.0-47-amd64"), "6.1.0-47-amd64", "6.1.0-50-amd64"),
    "the newest of several": (
        ("6.1.0-9-amd64", "6.1.0-56-amd64", "6.1.0-50-amd64"),
        "6.1.0-47-amd64",
        "6.1.0-56-amd64",
    ),
    "numbers are numbers": (("6.12.107+deb13-amd64",), "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"),
    "an older one": (("6.1.0-44-amd64",), "6.1.0-47-amd64", ""),
    "the running one": (("6.1.0-47-amd64",), "6.1.0-47-amd64", ""),
    "one of another flavour": (("6.1.0-50-rt-amd64", "6.1.0-50-cloud-amd64"), "6.1.0-47-amd64", ""),
    "of another distribution": (
        ("5.14.0-427.el9.x86_64", "5.14.0-362.el9.x86_64"),
        "5.14.0-362.el9.x86_64",
        "5.14.0-427.el9.x86_64",
    ),
    "nothing is known": ((), "6.1.0-47-amd64", ""),
}


@pytest.mark.parametrize(("installed", "running", "expected"), PENDING.values(), ids=PENDING.keys())
def test_the_kernel_that_the_next_boot_takes(installed, running, expected):
    assert pending_kernel(installed, running) == expected
