import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.repository import ROOT
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.node.host.task_result import EXIT_CODES, LONGEST_MESSAGE, termination_message, write_message


def test_every_reason_has_an_exit_code_of_its_own():
    assert set(EXIT_CODES) == set(Reason)
    assert len(set(EXIT_CODES.values())) == len(Reason)
    assert EXIT_CODES[Reason.DONE] == 0
    assert 1 not in EXIT_CODES.values()


def test_the_documented_codes_are_these():
    page = (ROOT / "docs" / "reference" / "node-contract.md").read_text()
    documented = {Reason(name): int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)}
    assert documented == EXIT_CODES


@given(message=st.text(max_size=6000), facts=st.dictionaries(st.text(max_size=20), st.text(max_size=3000), max_size=4))
def test_a_termination_message_always_fits_and_is_always_an_answer(message, facts):
    text = termination_message(OrderResult(reason=Reason.BUSY, message=message, facts=facts))
    assert len(text) <= LONGEST_MESSAGE
    back = msgspec.json.decode(text, type=OrderResult)
    assert back.reason is Reason.BUSY
    assert back.message == message or message.startswith(back.message.removesuffix("…"))


def test_a_short_result_is_left_whole(tmp_path):
    log = tmp_path / "termination-log"
    log.touch()
    result = OrderResult(reason=Reason.DONE, message="well", seconds=1.5, facts={"kernel": "6.1"})
    write_message(result, log)
    assert msgspec.json.decode(log.read_bytes(), type=OrderResult) == result


def test_outside_a_pod_no_file_is_made(tmp_path):
    write_message(OrderResult(reason=Reason.DONE, message="well"), tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_the_driver_programs_use_the_same_numbers():
    programs = ROOT / "driver-images"
    lines = (programs / "shared/lib.sh").read_text().splitlines()
    numbers = dict(word.split("=") for line in lines if line.startswith("KERNEL_MISMATCH=") for word in line.split())
    names = {"KERNEL_MISMATCH", "DRIVER_MISMATCH", "CHECKSUM_MISMATCH", "MISSING", "DEVICE_FAILED", "BAD_ORDER"}
    assert numbers == {name: str(EXIT_CODES[Reason[name]]) for name in names}
    for script, reason in (("shared/lock.sh", "MISSING"), ("sim/unload", "BUSY"), ("modules/unload", "BUSY")):
        assert f"exit {EXIT_CODES[Reason[reason]]}" in (programs / script).read_text(), script
