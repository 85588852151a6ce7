"""The text that the simulated library reads: each line is one that the library looks for."""

import re

import pytest
from msgspec import structs

from upgrader_dev.nvml.description import FabricState, render_description, simulate_node
from upgrader_dev.nvml.library import SOURCE

LONGEST = {"scope": 15, "key": 63, "value": 127}


def lines_of(driver):
    return [line.split(" ", 2) for line in render_description(driver).splitlines()]


@pytest.fixture
def every_answer():
    driver = simulate_node("535.261.03")
    partitions = tuple(f"MIG-{number:08d}-0000-4000-8000-000000000000" for number in range(8))
    changes = {"lost": True, "mig": True, "partitions": partitions, "fabric": FabricState.IN_PROGRESS}
    return structs.replace(driver, gpus=(*driver.gpus[:-1], structs.replace(driver.gpus[-1], **changes)))


def test_the_library_reads_each_key_of_a_description(every_answer):
    source = SOURCE.read_text()
    literal = set(re.findall(r'"([A-Za-z0-9]+(?:\.[A-Za-z]+)?)"', source))
    declared = set(re.findall(r"\b(?:TEXT|NUMBER)\((\w+)\)", source))
    pairs = {
        f"{name}.{field}"
        for name, *fields in re.findall(r'\bPAIR\((\w+), "(\w+)", "(\w+)"\)', source)
        for field in fields
    }
    numbered = set(re.findall(r'make_key\("(\w+)"', source)) | set(re.findall(r"\bCHOICE\((\w+)\)", source))
    keys = {key for _, key, _ in lines_of(every_answer)}
    unread = {key for key in keys - literal - declared - pairs if key.split(".")[0] not in numbered}
    assert unread == set()


def test_a_description_fits_into_the_library(every_answer):
    lines = lines_of(every_answer)
    assert len(lines) < 16384
    longest = {name: max(len(line[at]) for line in lines) for at, name in enumerate(LONGEST)}
    assert all(longest[name] <= limit for name, limit in LONGEST.items())


def test_a_gpu_reports_only_what_it_has():
    driver = simulate_node("1", 1)
    bare = structs.replace(driver.gpus[0], fabric=None, links=(), ecc=False)
    keys = {key.split(".")[0] for _, key, _ in lines_of(structs.replace(driver, gpus=(bare,)))}
    assert keys.isdisjoint({"GpuFabricInfo", "MemoryErrorCounter", "RemappedRows", "Handle"})
    assert {"Name", "UUID", "PciInfo", "CurrPcieLinkWidth", "FieldValues"} <= keys


def test_addresses_are_those_of_nvidia_smi():
    answers = {(scope, key): value for scope, key, value in lines_of(simulate_node("1", 2))}
    assert answers["node", "Count"] == "2"
    assert answers["1", "PciInfo.busId"] == "00000000:2B:00.0"
