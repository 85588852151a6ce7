"""What nvidia-smi reports about the GPUs of a node, read into values: `nvidia-smi -q -x` and `nvidia-smi nvlink -s`.

The reports are input from outside: they are bounded, declare no entities, and everything that is not understood is an
error. The format is that of nvidia-smi 535 and 550 (nvsmi_device_v12.dtd); elements of other versions are not read.
"""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from msgspec import Struct

from upgrader.core.errors import UnreadableError

LONGEST_REPORT = 16 << 20
"""Characters of a report; one of eight GPUs has 120,000 with every list of clocks."""
MOST_GPUS = 256
DEEPEST = 32
LONGEST_VALUE = 100
END = "</nvidia_smi_log>"

NOT_REPORTED = frozenset({"", "N/A", "[N/A]", "Not Supported", "[Not Supported]", "Function Not Found"})
"""Values of elements that the GPU, or the library of this driver, does not have."""

_ADDRESS = re.compile(r"([0-9A-Fa-f]{8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_GPU_LINE = re.compile(r"GPU \d+: .*\(UUID: (GPU-[0-9A-Za-z-]{1,64})\)")
_LINK_LINE = re.compile(r"Link (\d{1,3}): (\S.*)")


class GpuFacts(Struct, frozen=True, kw_only=True):
    """What nvidia-smi reports about a GPU; a text is empty if the GPU does not have it.

    `address` is that of the PCI function, as in sysfs. `uncorrected` are the counters of uncorrected errors since the
    driver was loaded. `mig_devices` is the number of its partitions.
    """

    uuid: str
    address: str
    model: str = ""
    width: str = ""
    max_width: str = ""
    uncorrected: dict[str, str] = {}
    remap_pending: str = ""
    remap_failure: str = ""
    retirement_pending: str = ""
    mig: str = ""
    mig_devices: int = 0
    fabric_state: str = ""
    fabric_status: str = ""
    power_limit: str = ""
    default_power_limit: str = ""


class SmiReport(Struct, frozen=True, kw_only=True):
    """The version of the loaded driver, and the GPUs in the order of their indices."""

    driver_version: str
    gpus: tuple[GpuFacts, ...]


def parse_report(output: str) -> SmiReport:
    """The report of `nvidia-smi -q -x`; text after its end, such as standard error, is ignored.

    Raises:
        UnreadableError: it is no such report, is too large, or declares entities.
    """
    root = _parse_xml(output[: output.rfind(END) + len(END)])
    gpus = root.findall("gpu")
    if root.tag != "nvidia_smi_log" or len(gpus) > MOST_GPUS:
        raise UnreadableError(f"the report is a {root.tag[:LONGEST_VALUE]!r} with {len(gpus)} GPUs")
    facts = tuple(_read_gpu(gpu) for gpu in gpus)
    if len({gpu.uuid for gpu in facts}) != len(facts):
        raise UnreadableError("two GPUs of the report have the same UUID")
    return SmiReport(driver_version=_read_value(root, "driver_version"), gpus=facts)


def parse_links(output: str) -> dict[str, dict[int, str]]:
    """The NVLinks in the output of `nvidia-smi nvlink -s`: UUID of the GPU, number of the link, its speed or state."""
    links: dict[str, dict[int, str]] = {}
    current: dict[int, str] | None = None
    for line in output[:LONGEST_REPORT].splitlines():
        if gpu := _GPU_LINE.fullmatch(line.strip()):
            current = links.setdefault(gpu[1], {})
        elif current is not None and (link := _LINK_LINE.fullmatch(line.strip())):
            current[int(link[1])] = link[2][:LONGEST_VALUE]
    return links


def _read_gpu(gpu: Element) -> GpuFacts:
    address = _ADDRESS.fullmatch(gpu.get("id", ""))
    uuid = _read_value(gpu, "uuid")
    if address is None or not uuid:
        raise UnreadableError(f"a GPU of the report has the UUID {uuid!r} and the address {gpu.get('id', '')[:40]!r}")
    return GpuFacts(
        uuid=uuid,
        address=f"{int(address[1], 16):04x}:{address[2].lower()}",
        model=_read_value(gpu, "product_name"),
        width=_read_value(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width"),
        max_width=_read_value(gpu, "pci/pci_gpu_link_info/link_widths/max_link_width"),
        uncorrected=dict(_read_uncorrected(gpu)),
        remap_pending=_read_value(gpu, "remapped_rows/remapped_row_pending"),
        remap_failure=_read_value(gpu, "remapped_rows/remapped_row_failure"),
        retirement_pending=_read_value(gpu, "retired_pages/pending_retirement"),
        mig=_read_value(gpu, "mig_mode/current_mig"),
        mig_devices=len(gpu.findall("mig_devices/mig_device")),
        fabric_state=_read_value(gpu, "fabric/state"),
        fabric_status=_read_value(gpu, "fabric/status"),
        power_limit=_read_value(gpu, "gpu_power_readings/requested_power_limit"),
        default_power_limit=_read_value(gpu, "gpu_power_readings/default_power_limit"),
    )


def _read_uncorrected(gpu: Element) -> Iterator[tuple[str, str]]:
    """Counters of Ampere and newer, by the names of their elements, and the sum that older GPUs have."""
    for counter in gpu.findall("ecc_errors/volatile/*"):
        if "uncorrectable" in counter.tag and (value := _read_value(counter, ".")):
            yield counter.tag[:LONGEST_VALUE], value
    if value := _read_value(gpu, "ecc_errors/volatile/double_bit/total"):
        yield "double_bit", value


def _read_value(element: Element, path: str) -> str:
    found = element if path == "." else element.find(path)
    text = "" if found is None else (found.text or "").strip()[:LONGEST_VALUE]
    return "" if text in NOT_REPORTED else text


def _parse_xml(text: str) -> Element:
    """A document; nvidia-smi names a DTD that is never read, so that a document needs no entity but those of XML."""
    if len(text) > LONGEST_REPORT:
        raise UnreadableError(f"the report has more than {LONGEST_REPORT} characters")
    builder, depth = TreeBuilder(), 0
    parser = expat.ParserCreate("utf-8")

    def start_element(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise UnreadableError(f"the report is nested more than {DEEPEST} times")
        builder.start(name, attributes)

    def end_element(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    def reject_entity(*_: object) -> None:
        raise UnreadableError("the report declares or uses an entity")

    parser.StartElementHandler = start_element
    parser.EndElementHandler = end_element
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = reject_entity
    parser.SkippedEntityHandler = reject_entity
    try:
        parser.Parse(text.encode(errors="replace"), True)
    except expat.ExpatError as error:
        raise UnreadableError(f"the report is no XML document: {error}") from error
    return builder.close()
