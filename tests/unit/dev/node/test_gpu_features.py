"""What feature discovery of simulated devices reads on its node."""

import json
import sys

import msgspec
import pytest

from upgrader.core.node_protocol.gpu_features import GpuReport
from upgrader.node.host.task_result import OrderFailedError
from upgrader.process import run
from upgrader_dev.node.gpu_features import read_gpus, wait_for_changed_gpus, write_report

RECORD = {"vendor": "sim", "version": "570.10", "kernel": "k", "bootId": "boot-1", "devices": 8, "simulated": True}
REPORT = GpuReport(boot_id="boot-1", uptime=12.5, version="570.10", devices=8)


@pytest.fixture
def node(tmp_path):
    """RUN_DIRECTORY with a driver that is loaded, and the machine's uptime."""
    load(tmp_path, RECORD)
    (tmp_path / "uptime").write_text("12.5 99.0\n")
    return tmp_path


def load(folder, record):
    (folder / record["vendor"]).mkdir(exist_ok=True)
    (folder / record["vendor"] / "loaded.json").write_text(json.dumps(record))


def read(folder, driver="sim"):
    return read_gpus(folder, driver=driver, count=4, uptime=folder / "uptime")


def test_a_report_is_of_the_driver_that_is_loaded(node):
    assert read(node) == REPORT
    load(node, RECORD | {"vendor": "nvidia", "version": "535.261.03", "devices": 0, "simulated": False})
    assert read(node, "nvidia") == msgspec.structs.replace(REPORT, version="535.261.03", devices=4)


def test_without_a_driver_there_is_none(tmp_path):
    with pytest.raises(OrderFailedError, match="no driver of sim is loaded"):
        read(tmp_path)


def test_a_record_that_says_what_no_driver_says_is_no_report(node):
    load(node, RECORD | {"version": "v" * 64})
    with pytest.raises(OrderFailedError, match="the record of the loaded driver is invalid"):
        read(node)


def test_it_rests_until_another_driver_is_loaded(node):
    waited = []

    def wait(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            load(node, RECORD | {"version": "580.1"})

    assert wait_for_changed_gpus(lambda: read(node), wait).version == "580.1"
    assert len(waited) == 3


def test_those_that_come_after_it_find_its_report(node):
    write_report(node, REPORT)
    assert msgspec.json.decode((node / "gpu-features.json").read_bytes(), type=GpuReport) == REPORT


def test_the_command_says_what_it_read_and_where_it_could_not(node):
    words = [sys.executable, "-m", "upgrader_dev.node", "gpu-features", "--run", str(node)]
    said = msgspec.json.decode(run(words, timeout=30).stdout, type=GpuReport)
    assert (said.version, said.devices, said.boot_id) == ("570.10", 8, "boot-1")
    (node / "sim" / "loaded.json").unlink()
    ended = run(words, timeout=30, check=False)
    assert (ended.code, ended.text.strip()) == (11, "no driver of sim is loaded")
