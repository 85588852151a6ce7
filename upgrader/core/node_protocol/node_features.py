"""What a node says of itself, and the labels that node-feature-discovery (NFD) would make of it. Pure.

Names and values are NFD's, so that selectors, other operators and our own drift checks find the same on clusters with
and without it. What NFD does was read in its source (kubernetes-sigs/node-feature-discovery, v0.20 development, commit
76e6cc8: source/kernel/version.go, source/system/system.go, source/pci, pkg/nfd-master/nfd-master.go) and in its page
"Feature labels" (docs/usage/features.md):

- A kernel's name is escaped: every character that a label's value may not have becomes `_`, then `-`, `_` and `.` go at
  both ends. Its parts are taken from the escaped name, and only where a `-` or nothing follows the numbers:
  `6.12.94+deb13-amd64` becomes `6.12.94_deb13-amd64`, which has no parts. A part that is missing is an empty value.
- ID and VERSION_ID of os-release are not escaped; what is no label value is left out.
- A PCI device counts by its class: 03 (displays), 0b40 (co-processors), 12 (accelerators). NFD's own label is
  `pci-<class>_<vendor>.present`. NVIDIA's operator configures it to `pci-<vendor>.present`, which our build pods keep
  away from too; both are made here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from upgrader.core import untrusted

PREFIX = "feature.node.kubernetes.io/"
LABELS_KERNEL = tuple(f"{PREFIX}kernel-version.{part}" for part in ("full", "major", "minor", "revision"))
LABELS_SYSTEM = tuple(
    f"{PREFIX}system-os_release.{part}" for part in ("ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor")
)

NFD = "nfd.node.kubernetes.io"
ANNOTATION_NFD = f"{NFD}/feature-labels"
"""On Nodes: the labels that NFD keeps there, with commas; `<instance>.` stands in front where it runs under a name."""
LABEL_NFD_NODE = f"{NFD}/node-name"
"""On NodeFeature objects: the node that they are about. NFD's worker names its own as the node."""

PCI_CLASSES = ("03", "0b40", "12")
"""NFD's default `deviceClassWhitelist`: beginnings of class codes, without the programming interface."""

LONGEST = 256
"""Characters of a text, and entries of a list, in a report: more than any label value may have, few enough for a
termination message."""

MOST_KERNELS = 16
"""Kernels in a report: more than a machine keeps, few enough for a termination message."""

_RELEASE = re.compile(r"(?P<version>\d[\w.+~]*(?:-\d[\w.+~]*)?)-?(?P<flavour>.*)", re.ASCII | re.DOTALL)
_DIGITS = re.compile(r"(\d+)")

_FORBIDDEN = re.compile(r"[^-A-Za-z0-9_.]")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KERNEL = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-.*)?", re.ASCII)
_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\..*)?", re.ASCII)

_Text = Annotated[str, Meta(max_length=LONGEST)]
_Device = Annotated[str, Meta(pattern=r"^[0-9a-f]{4}_[0-9a-f]{4}\Z")]


class FeatureReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a pod read on its node: facts, no labels, so that a node can say nothing but what it is.

    `pci`: class and vendor of each sort of device that counts, as `0302_10de`. `uptime`: seconds since the boot.
    `kernels`: those that are installed, the newest first.
    """

    boot_id: Annotated[str, Meta(min_length=1, max_length=64)]
    uptime: float
    kernel: Annotated[str, Meta(min_length=1, max_length=LONGEST)]
    os_id: _Text = ""
    os_version: _Text = ""
    pci: Annotated[tuple[_Device, ...], Meta(max_length=LONGEST)] = ()
    kernels: Annotated[tuple[_Text, ...], Meta(max_length=MOST_KERNELS)] = ()


class FeatureRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What we wrote on a node, kept there in the same patch: for which stack, read on which boot, which labels."""

    stack: str
    boot_id: str
    labels: dict[str, str]
    pending: str = ""  # kernel that the next boot would take, where that is another one


def label_value(text: str) -> str:
    """A text as NFD writes a kernel's name into a label's value."""
    return _FORBIDDEN.sub("_", text).strip("-_.")


def same_kernel(label: str, kernel: str) -> bool:
    """Whether a label stands for this kernel: as it is, or escaped."""
    return label in {kernel, label_value(kernel)}


def kernel_order(release: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which newer releases come later: numbers as numbers, everything else as text."""
    return tuple((1, int(one), "") if one.isdecimal() else (0, 0, one) for one in _DIGITS.split(release) if one)


def pending_kernel(kernels: Iterable[str], running: str) -> str:
    """The kernel that the next boot would take: the newest installed of the running one's flavour, if that is newer.

    That is what boot loaders of distributions do unless a person chose otherwise; empty where it is the running one.
    """
    newer = [one for one in kernels if _flavour(one) == _flavour(running) and kernel_order(one) > kernel_order(running)]
    return max(newer, key=kernel_order, default="")


def _flavour(release: str) -> str:
    found = _RELEASE.fullmatch(release)
    return found["flavour"] if found is not None else release


def counts(device: str) -> bool:
    """Whether a PCI device, as `0302_10de`, is of a class that is told."""
    return device.startswith(PCI_CLASSES)


def feature_labels(report: FeatureReport) -> dict[str, str]:
    """The labels of a node; what is no label value, being too long or not escaped, is left out."""
    kernel = label_value(report.kernel)
    labels = dict(zip(LABELS_KERNEL, (kernel, *_parts(_KERNEL, kernel)), strict=False))
    if report.os_id:
        labels[LABELS_SYSTEM[0]] = report.os_id
    if report.os_version:
        labels[LABELS_SYSTEM[1]] = report.os_version
        parts = zip(LABELS_SYSTEM[2:], _parts(_VERSION, report.os_version), strict=False)
        labels |= {name: part for name, part in parts if part}
    for device in filter(counts, report.pci):
        labels |= {f"{PREFIX}pci-{name}.present": "true" for name in (device, device.partition("_")[2])}
    return {name: value for name, value in sorted(labels.items()) if _VALUE.fullmatch(value)}


def _parts(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = pattern.fullmatch(text)
    return found.groups(default="") if found is not None else ()


def kept_by_nfd(annotations: Mapping[str, str]) -> frozenset[str] | None:
    """The labels that NFD says it keeps on a node; None where it has left no mark there, so that it does not run."""
    marks = [name for name in annotations if f".{name}".partition("/")[0].endswith(f".{NFD}")]
    if not marks:
        return None
    listed = (annotations[name].split(",") for name in marks if name.endswith("/feature-labels"))
    return frozenset(one if "/" in one else f"{PREFIX}{one}" for names in listed for one in names if one)


def read_record(text: str) -> FeatureRecord | None:
    """What we wrote on a node; None where nobody can read it any more."""
    return untrusted.document(text, FeatureRecord)
