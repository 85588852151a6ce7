"""Redaction: nothing that identifies a machine is left, and everything else is."""

import string
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.smi_reports import make_gpu, render_report
from upgrader.core.first_node.redaction import Redactor
from upgrader.node.validation.gpu_report import parse_report

REPORTS = Path(__file__).parents[2] / "node/validation/nvidia_smi"
KEY = b"k" * 16
LETTERS = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"


def hexes(count):
    return st.text(HEX, min_size=count, max_size=count)


def joined(separator, count, digits):
    return st.lists(hexes(digits), min_size=count, max_size=count).map(separator.join)


labels = st.text(LETTERS, min_size=4, max_size=12).filter(lambda text: not text.isdigit())
names = st.lists(labels, min_size=2, max_size=4).map("-".join)
domains = st.lists(labels, min_size=3, max_size=4).map(".".join)
addresses = st.ip_addresses().filter(lambda found: not (found.is_loopback or found.is_unspecified)).map(str)
uuids = st.uuids().map(str)
macs = joined(":", 6, 2)
guids = joined(":", 4, 4)
serials = st.from_regex(r"[0-9]{13}", fullmatch=True)
tokens = st.text(string.ascii_letters + string.digits, min_size=12, max_size=40)
known = st.lists(st.one_of(names, domains), min_size=1, max_size=4)
before = st.sampled_from(["", " ", "\n", "link to ", "x=", "(", '"', "peer:", "/", "from-", "\t[", "host: "])
after = st.sampled_from(["", " ", "\n", ")", '"', ", up", "/24", ";", "]", "-abc"])
loose_after = st.sampled_from(["", " ", "\n", ")", '"', ", up", ";"])


def secrets():
    """A secret, and a text that contains it as programs print it."""
    plain = st.one_of(uuids, macs, guids, addresses.filter(lambda text: not text.endswith(":")))
    return st.one_of(
        plain.map(lambda text: (text, f"{text}")),
        uuids.map(lambda text: (text, f"GPU-{text}")),
        serials.map(lambda text: (text, f"<serial>{text}</serial>")),
        serials.map(lambda text: (text, f"    Serial Number                     : {text}")),
        tokens.map(lambda text: (text, f"token: {text}")),
        tokens.map(lambda text: (text, f'"password": "{text}"')),
        tokens.map(lambda text: (text, f"Authorization: Bearer {text}")),
        tokens.map(lambda text: (text, f"https://user:{text}@registry/v2/")),
        tokens.map(lambda text: (text, f"eyJ{text}.{text}.{text}")),
        domains.map(lambda text: (text, f"https://{text}:6443/api")),
    )


@given(known, st.lists(st.tuples(before, secrets(), loose_after), max_size=6), before, after, st.booleans())
def test_no_secret_and_no_known_name_is_left(hidden, parts, front, back, upper):
    text = "".join(f"{head} {shown}{tail} " for head, (_, shown), tail in parts)
    text += "".join(f"{front}{name.upper() if upper else name}{back} " for name in hidden)
    shown = Redactor(KEY, hidden).redact_text(text)
    left = [secret for secret in [*hidden, *(secret for _, (secret, _), _ in parts)] if secret.lower() in shown.lower()]
    assert left == []


@given(known, st.text(max_size=300))
def test_it_is_idempotent_and_keeps_the_lines(hidden, text):
    redactor = Redactor(KEY, hidden)
    once = redactor.redact_text(text)
    assert redactor.redact_text(once) == once
    assert len(once.split("\n")) == len(text.split("\n"))


@given(names, names)
def test_a_name_has_one_pseudonym_and_another_name_has_another(one, other):
    first, again, second = Redactor(KEY, [one, other]).redact_text(f"{one} {one} {other}").split(" ")
    assert first == again
    assert (first == second) == (one == other)


@given(names)
def test_the_pseudonym_depends_on_the_key(name):
    assert Redactor(KEY, [name]).redact_text(name) != Redactor(b"x" * 16, [name]).redact_text(name)


def test_names_below_and_beside_a_domain_are_hidden():
    redactor = Redactor(KEY, ["gpu-1.cluster.example.com", "corp.example"])
    text = redactor.redact_text("gpu-1 nfs.cluster.example.com a.b.corp.example corp.example, x-corp.example")
    assert ("example" in text, text.startswith("gpu-1 host-")) == (False, True)


def test_a_name_inside_of_a_name_of_a_pod_is_hidden():
    text = Redactor(KEY, ["gpu-1"]).redact_text("survey-gpu-1-0a1b and gpu-10 and agpu-1")
    assert "survey-host-" in text
    assert text.endswith("-redacted-0a1b and gpu-10 and agpu-1")


@pytest.mark.parametrize(
    "text",
    [
        "Linux version 6.1.0-47-amd64 (gcc-12, GNU ld 2.40)",
        "NVRM version: NVIDIA UNIX Open Kernel Module  535.261.03  Release Build",
        "00000000:3B:00.0 and 0000:3b:00.0 and 0000:9c:00.1",
        "2026-11-28T01:23:38.123456Z and 12:34:56 and [   12.345678] nvidia",
        "127.0.0.1 0.0.0.0 ::1 ::",
        "VBIOS 96.00.74.00.01, InfoROM G520.0200.00.05",
        "serial8250: ttyS0 at I/O 0x3f8 (irq = 4, base_baud = 115200) is a 16550A",
        "<serial>N/A</serial>",
        "containerd://2.3.7 and BIOS-e820: [mem 0x0000000000000000-0x000000000009fbff] usable",
        "systemd-ask-password-console.path loaded active waiting Dispatch Password Requests to Console",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "std::string nvidia.ko user@1000.service kubepods.slice",
    ],
)
def test_what_identifies_nothing_stays(text):
    assert Redactor(KEY, ["gpu-1"]).redact_text(text) == text


def test_values_of_json_are_redacted_before_their_escapes():
    redactor = Redactor(KEY, ["gpu-1"])
    value = redactor.redact_value({"gpu-1": ["\ngpu-1", 3, None, {"a": "10.0.0.1"}]})
    host, address = redactor.redact_text("gpu-1"), redactor.redact_text("10.0.0.1")
    assert value == {host: [f"\n{host}", 3, None, {"a": address}]}


def test_the_parsers_read_a_redacted_report_and_see_the_same_gpus():
    uuid = "GPU-6c2f1c5e-30f0-4a86-9a1e-2f2d3ee0ad2"
    gpus = [make_gpu(f"{uuid}{at}", f"0000:{at}b:00.0") for at in (1, 2)]
    report = render_report("535.261.03", gpus)
    redacted = Redactor(KEY, ["gpu-1"]).redact_text(report)
    before, after = parse_report(report), parse_report(redacted)
    uuids = {gpu.uuid for gpu in after.gpus}
    assert uuids.isdisjoint(gpu.uuid for gpu in before.gpus)
    assert len(uuids) == len(before.gpus)
    assert [msgspec.structs.replace(gpu, uuid="") for gpu in after.gpus] == [
        msgspec.structs.replace(gpu, uuid="") for gpu in before.gpus
    ]


@pytest.mark.parametrize("path", sorted(REPORTS.glob("5*.xml")), ids=lambda path: path.name)
def test_reports_of_nvidia_smi_keep_everything_but_identifiers(path):
    before, after = parse_report(path.read_text()), parse_report(Redactor(KEY).redact_text(path.read_text()))
    assert [msgspec.structs.replace(gpu, uuid="") for gpu in after.gpus] == [
        msgspec.structs.replace(gpu, uuid="") for gpu in before.gpus
    ]


@pytest.mark.parametrize("unit", ["-", "a-", "a.", "::", "1:", "0x", "1.", "serial ", "token ", "eyJ.", "://", "a "])
def test_a_hostile_text_takes_no_long_time(unit):
    begin = time.process_time()
    Redactor(KEY, [*(f"node-{number}.example.com" for number in range(2000)), "a-" * 30]).redact_text(unit * 60_000)
    assert time.process_time() - begin < 20
