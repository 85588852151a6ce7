"""Reports of nvidia-smi become values; what is no report is one error, whatever it is."""

import contextlib
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.smi_reports import HEAD, make_gpu, render_links, render_report
from upgrader.core.errors import UnreadableError
from upgrader.node.validation.gpu_report import (
    DEEPEST,
    LONGEST_REPORT,
    MOST_GPUS,
    NOT_REPORTED,
    SmiReport,
    parse_links,
    parse_report,
)

RECORDED = Path(__file__).with_name("nvidia_smi")
BRANCHES = ("535", "550")
UUIDS = [f"GPU-{index:08d}-0000-4000-8000-000000000000" for index in range(4)]
ADDRESSES = [f"0000:{bus:02x}:00.0" for bus in (0x1B, 0x2B, 0x3B, 0x4B)]
SRAM = {"sram_uncorrectable_parity": "0", "sram_uncorrectable_secded": "0"}
"""Since 535.161 both branches divide the errors of SRAM."""


def read(name):
    return (RECORDED / name).read_text()


def recorded_gpus(count):
    gpus = zip(UUIDS[:count], ADDRESSES[:count], strict=True)
    return [make_gpu(*gpu, uncorrected={**SRAM, "dram_uncorrectable": "0"}) for gpu in gpus]


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_recorded_report_of_a_healthy_node(branch):
    expected = SmiReport(driver_version="535.261.03", gpus=tuple(recorded_gpus(2)))
    assert parse_report(read(f"{branch}-healthy.xml")) == expected
    links = dict.fromkeys(range(18), "26.562 GB/s")
    assert parse_links(read(f"{branch}-healthy.links")) == {UUIDS[0]: links, UUIDS[1]: links}


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_recorded_report_of_a_node_with_faults(branch):
    gpus = recorded_gpus(4)
    gpus[3] = structs.replace(
        gpus[3],
        width="8x",
        uncorrected={**SRAM, "dram_uncorrectable": "4"},
        remap_pending="Yes",
        mig="Enabled",
        fabric_state="In Progress",
        fabric_status="",
    )
    assert parse_report(read(f"{branch}-faulty.xml")) == SmiReport(driver_version="535.261.03", gpus=tuple(gpus))
    links = parse_links(read(f"{branch}-faulty.links"))[UUIDS[3]]
    assert links == {number: "<inactive>" if number % 2 else "26.562 GB/s" for number in range(18)}


def test_errors_of_older_gpus_are_one_sum():
    report = render_report("470.1", [make_gpu(uncorrected={})])
    double = "<volatile><double_bit><device_memory>2</device_memory><total>3</total></double_bit></volatile>"
    old = report.replace("<volatile></volatile>", double)
    assert parse_report(old).gpus[0].uncorrected == {"double_bit": "3"}


def test_what_follows_the_report_is_ignored():
    report = render_report("1", [make_gpu()])
    assert parse_report(report + "WARNING: infoROM is corrupted at gpu 0000:3B:00.0 <&\n") == parse_report(report)


BOMB = """<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><nvidia_smi_log>&b;"""


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("", "is no XML document"),
        (f"{BOMB}</nvidia_smi_log>", "declares or uses an entity"),
        (f"{HEAD}<nvidia_smi_log>&secret;</nvidia_smi_log>", "declares or uses an entity"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><x></x></nvidia_smi_log>', "is no XML document"),
        (f"{'<a>' * DEEPEST}<nvidia_smi_log></nvidia_smi_log>", "is nested more than"),
        (f"<nvidia_smi_log>{' ' * LONGEST_REPORT}</nvidia_smi_log>", "characters"),
        (f"<nvidia_smi_log>{'<gpu/>' * (MOST_GPUS + 1)}</nvidia_smi_log>", "with 257 GPUs"),
        ('<nvidia_smi_log><gpu id="00000000:01:00.0"></gpu></nvidia_smi_log>', "has the UUID ''"),
        ('<nvidia_smi_log><gpu id="../../x"><uuid>GPU-1</uuid></gpu></nvidia_smi_log>', "address '../../x'"),
        (render_report("1", [make_gpu(), make_gpu(address="0000:01:00.0")]), "have the same UUID"),
    ],
)
def test_what_is_no_report_is_an_error(report, message):
    with pytest.raises(UnreadableError, match=message):
        parse_report(report)


values = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=90).map(str.strip)
reported = values.map(lambda text: "" if text in NOT_REPORTED else text)
addresses = st.from_regex(r"\A[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
counters = st.dictionaries(st.sampled_from(["sram_uncorrectable", "dram_uncorrectable"]), reported.filter(bool))
gpus = st.builds(
    make_gpu,
    uuid=st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=40).map("GPU-{}".format),
    address=addresses,
    model=reported,
    width=reported,
    max_width=reported,
    uncorrected=counters,
    remap_pending=reported,
    remap_failure=reported,
    retirement_pending=reported,
    mig=reported,
    mig_devices=st.integers(0, 8),
    fabric_state=reported,
    fabric_status=reported,
)


@given(reported, st.lists(gpus, max_size=4, unique_by=lambda gpu: gpu.uuid))
def test_facts_survive_their_report(version, listed):
    assert parse_report(render_report(version, listed)) == SmiReport(driver_version=version, gpus=tuple(listed))


@given(st.dictionaries(gpus.map(lambda gpu: gpu.uuid), st.dictionaries(st.integers(0, 40), st.just("<inactive>"))))
def test_links_survive_their_report(states):
    assert parse_links(render_links(states)) == states


pieces = st.sampled_from(
    [
        HEAD,
        BOMB,
        "<nvidia_smi_log>",
        "</nvidia_smi_log>",
        "<gpu>",
        '<gpu id="00000000:01:00.0">',
        "</gpu>",
        "<uuid>",
        "&a;",
    ]
)
documents = st.one_of(
    st.text(), st.binary().map(lambda data: data.decode(errors="surrogateescape")), st.lists(pieces).map("".join)
)


@given(documents)
def test_any_text_is_a_report_or_unreadable(text):
    assert isinstance(parse_links(text), dict)
    for output in (text, f"<nvidia_smi_log>{text}</nvidia_smi_log>"):
        with contextlib.suppress(UnreadableError):
            assert isinstance(parse_report(output), SmiReport)


@given(st.data(), st.sampled_from(BRANCHES))
def test_a_damaged_report_is_a_report_or_unreadable(data, branch):
    report = read(f"{branch}-faulty.xml")
    at = data.draw(st.integers(0, len(report)))
    damaged = report[:at] + data.draw(st.text(max_size=3)) + report[at + data.draw(st.integers(0, 200)) :]
    with contextlib.suppress(UnreadableError):
        assert len(parse_report(damaged).gpus) <= 4
