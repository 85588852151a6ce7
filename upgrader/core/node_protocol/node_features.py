"""Feature reports of nodes, and the labels that node-feature-discovery (NFD) would make from them. Pure.

Names and values are those of NFD, so that selectors, other operators and the drift checks read the same on clusters
with and without it. They follow NFD's source (kubernetes-sigs/node-feature-discovery, v0.20 development, commit
76e6cc8: source/kernel/version.go, source/system/system.go, source/pci, pkg/nfd-master/nfd-master.go) and its page
"Feature labels" (docs/usage/features.md):

- A kernel's name is escaped: every character that a label value may not contain becomes `_`, then `-`, `_` and `.` are
  removed at both ends. Its parts are those of the escaped name, and only if a `-` or nothing follows the numbers:
  `6.12.94+deb13-amd64` becomes `6.12.94_deb13-amd64`, which has no parts. A missing part is an empty value.
- ID and VERSION_ID of os-release are not escaped; a text that is not a valid label value is left out.
- A PCI device counts by its class: 03 (displays), 0b40 (co-processors), 12 (accelerators). NFD's own label is
  `pci-<class>_<vendor>.present`. NVIDIA's operator configures it to `pci-<vendor>.present`, which build pods avoid too;
  both are made here.
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
"""On Nodes: the labels that NFD keeps there, with commas; the prefix is `<instance>.` if it runs with a name."""
LABEL_NFD_NODE = f"{NFD}/node-name"
"""On NodeFeature objects: their node. NFD's worker gives its object the name of the node."""

PCI_CLASSES = ("03", "0b40", "12")
"""NFD's default `deviceClassWhitelist`: prefixes of class codes, without the programming interface."""

LONGEST = 256
"""Characters of a text, and entries of a list, in a report: more than any label value may have, few enough for a
termination message."""

MOST_KERNELS = 16
"""Kernels in a report: more than a machine has, few enough for a termination message."""

_RELEASE = re.compile(r"(?P<version>\d[\w.+~]*(?:-\d[\w.+~]*)?)-?(?P<flavour>.*)", re.ASCII | re.DOTALL)
_DIGITS = re.compile(r"(\d+)")

_FORBIDDEN = re.compile(r"[^-A-Za-z0-9_.]")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KERNEL = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-.*)?", re.ASCII)
_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\..*)?", re.ASCII)

_Text = Annotated[str, Meta(max_length=LONGEST)]
_Device = Annotated[str, Meta(pattern=r"^[0-9a-f]{4}_[0-9a-f]{4}\Z")]


class FeatureReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod's report on its node: facts, no labels, so that a node cannot set other labels.

    `pci`: class and vendor of each kind of device that counts, as `0302_10de`. `uptime`: seconds since the boot.
    `kernels`: the installed kernels, the newest first.
    """

    boot_id: Annotated[str, Meta(min_length=1, max_length=64)]
    uptime: float
    kernel: Annotated[str, Meta(min_length=1, max_length=LONGEST)]
    os_id: _Text = ""
    os_version: _Text = ""
    pci: Annotated[tuple[_Device, ...], Meta(max_length=LONGEST)] = ()
    kernels: Annotated[tuple[_Text, ...], Meta(max_length=MOST_KERNELS)] = ()


class FeatureRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The record of the labels that were written on a node, in the same patch, with their stack and their boot."""

    stack: str
    boot_id: str
    labels: dict[str, str]
    pending: str = ""  # kernel of the next boot, if that is another one


def label_value(text: str) -> str:
    """A text in the form in which NFD writes a kernel's name into a label value."""
    return _FORBIDDEN.sub("_", text).strip("-_.")


def same_kernel(label: str, kernel: str) -> bool:
    """Whether a label names this kernel, literally or escaped."""
    return label in {kernel, label_value(kernel)}


def kernel_order(release: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts newer releases later: numbers as numbers, other parts as text."""
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in _DIGITS.split(release) if part)


def pending_kernel(kernels: Iterable[str], running: str) -> str:
    """The kernel of the next boot: the newest installed kernel of the running one's flavour, if that is newer.

    Boot loaders of distributions select it, unless a user selects another; empty if it is the running kernel.
    """
    same = (kernel for kernel in kernels if _kernel_flavour(kernel) == _kernel_flavour(running))
    newer = [kernel for kernel in same if kernel_order(kernel) > kernel_order(running)]
    return max(newer, key=kernel_order, default="")


def _kernel_flavour(release: str) -> str:
    match = _RELEASE.fullmatch(release)
    return match["flavour"] if match is not None else release


def is_counted_device(device: str) -> bool:
    """Whether a PCI device, such as `0302_10de`, is of a class that counts."""
    return device.startswith(PCI_CLASSES)


def feature_labels(report: FeatureReport) -> dict[str, str]:
    """The labels of a node; a text that is not a valid label value, too long or not escaped, is left out."""
    kernel = label_value(report.kernel)
    labels = dict(zip(LABELS_KERNEL, (kernel, *_version_parts(_KERNEL, kernel)), strict=False))
    if report.os_id:
        labels[LABELS_SYSTEM[0]] = report.os_id
    if report.os_version:
        labels[LABELS_SYSTEM[1]] = report.os_version
        parts = zip(LABELS_SYSTEM[2:], _version_parts(_VERSION, report.os_version), strict=False)
        labels |= {name: part for name, part in parts if part}
    for device in filter(is_counted_device, report.pci):
        labels |= {f"{PREFIX}pci-{name}.present": "true" for name in (device, device.partition("_")[2])}
    return {name: value for name, value in sorted(labels.items()) if _VALUE.fullmatch(value)}


def _version_parts(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    match = pattern.fullmatch(text)
    return match.groups(default="") if match is not None else ()


def kept_by_nfd(annotations: Mapping[str, str]) -> frozenset[str] | None:
    """The labels that NFD keeps on a node by its annotation; None if it has no annotation there: it does not run."""
    keys = [name for name in annotations if f".{name}".partition("/")[0].endswith(f".{NFD}")]
    if not keys:
        return None
    listed = (annotations[name].split(",") for name in keys if name.endswith("/feature-labels"))
    return frozenset(name if "/" in name else f"{PREFIX}{name}" for names in listed for name in names if name)


def read_record(text: str) -> FeatureRecord | None:
    """The record on a node; None if it is unreadable."""
    return untrusted.read_json(text, FeatureRecord)
