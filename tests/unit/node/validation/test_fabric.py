"""The fabric of a node with NVSwitches: when CUDA programs can start, by the fabric manager and by the GPUs."""

import json
import os
import re
import time

import pytest
from msgspec import structs

from tests.support.validated_node import ADDRESSES, NVIDIA, UUIDS, ValidatedNode, lay_gpus
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.validation.gpu_inspection import FABRIC_SECONDS


@pytest.fixture
def node(tmp_path):
    """A node with two GPUs and two NVSwitches, whose driver has a fabric manager that runs."""
    node = ValidatedNode(tmp_path)
    places = node.places
    node.record("nvidia", NVIDIA, 2, services=["fabricmanager"])
    (places.run / "nvidia/load-order").write_text("")
    library = places.drivers / "nvidia/current/usr/lib"
    library.mkdir(parents=True)
    (library / f"libnvidia-ml.so.{NVIDIA}").write_text("")
    (places.drivers / "nvidia/current/nvidia-smi").write_text("")
    lay_gpus(places, dict(zip(ADDRESSES, UUIDS, strict=True)))
    for number in range(2):
        (places.proc / f"driver/nvidia-nvswitch/devices/0000:1{number}:00.0").mkdir(parents=True)
    node.offered |= set(UUIDS)
    serve(node)
    return node


def report(node, state, status=""):
    """What nvidia-smi reports of the fabric of each GPU."""
    node.programs.gpus = [structs.replace(gpu, fabric_state=state, fabric_status=status) for gpu in node.programs.gpus]


def serve(node, state="Running", version=NVIDIA, reason=""):
    file = node.places.run / "nvidia/services/fabricmanager.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"service": "x", "version": version, "state": state, "reason": reason}))
    return file


def refused(node):
    return node.refused(vendor="nvidia", version=NVIDIA)


def test_a_fabric_that_is_configured(node):
    result = node.look("nvidia", NVIDIA)
    assert (result.reason, result.facts["fabric"]) == (Reason.DONE, "2 x Completed")


@pytest.mark.parametrize(("state", "status"), [("In Progress", ""), ("Completed", "Unknown Error"), ("x", "y")])
def test_a_fabric_that_is_not_configured_is_a_fault_of_its_gpus(node, state, status):
    report(node, state, status)
    check, reason, message = refused(node)
    assert (check, reason, message.count("Fabric: GPU")) == ("devices", Reason.DEVICE_FAILED, 2)


def test_without_states_of_gpus_the_service_counts(node):
    """As GPUs of the Ampere generation report."""
    report(node, "")
    assert node.look("nvidia", NVIDIA).reason is Reason.DONE
    serve(node, state="Failed", reason="usr/bin/nv-fabricmanager has ended")
    assert refused(node) == (
        "devices",
        Reason.DEVICE_FAILED,
        "check devices: Fabric: 2 NVSwitch(es): the fabric manager is Failed: usr/bin/nv-fabricmanager has ended",
    )


def test_a_fabric_manager_that_starts_is_waited_for(node):
    serve(node, state="Waiting")
    wait = node.clock.wait

    def start(seconds):
        wait(seconds)
        serve(node)

    node.clock.wait = start
    assert node.look("nvidia", NVIDIA).reason is Reason.DONE


def test_one_that_does_not_start_is_waited_for_as_long_as_links_are_trained(node):
    serve(node, state="Waiting")
    start = node.clock.monotonic()
    assert refused(node)[:2] == ("devices", Reason.DEVICE_FAILED)
    assert node.clock.monotonic() - start >= FABRIC_SECONDS


def test_without_nvidia_smi_the_service_counts(node):
    (node.places.drivers / "nvidia/current/nvidia-smi").unlink()
    assert node.look("nvidia", NVIDIA).reason is Reason.DONE
    node.record("nvidia", NVIDIA, 2)
    assert "the driver image contains no fabric manager" in refused(node)[2]


def test_an_image_without_a_fabric_manager_is_judged_by_its_gpus(node):
    """Another program has configured the switches."""
    node.record("nvidia", NVIDIA, 2)
    assert node.look("nvidia", NVIDIA).reason is Reason.DONE
    report(node, "")
    missing = f"the driver image contains no fabric manager, and {', '.join(ADDRESSES)} report no state of the fabric"
    assert refused(node)[2].endswith(missing)


@pytest.mark.parametrize("state", ["Waiting", "Idle", "Failed", ""])
def test_a_service_that_does_not_run_counts_also_if_the_fabric_was_configured_before(node, state):
    serve(node, state=state)
    assert f"the fabric manager is {state}" in refused(node)[2]


def test_a_service_of_another_version(node):
    serve(node, version="590.48.01")
    assert "a fabric manager of version 590.48.01 runs" in refused(node)[2]


def test_a_service_that_was_killed_does_not_renew_its_record(node):
    file = serve(node)
    os.utime(file, (time.time() - 600, time.time() - 600))
    assert re.search(r"has not renewed its record for 60\d s", refused(node)[2])


@pytest.mark.parametrize("contents", ["", "[]", '{"state": 3}', '{"state": "Running"}', "\x00"])
def test_a_record_that_cannot_be_read(node, contents):
    serve(node).write_text(contents)
    assert "the fabric manager has no record on the node" in refused(node)[2]


def test_switches_without_gpus_are_not_judged(tmp_path):
    node = ValidatedNode(tmp_path)
    node.record("nvidia", NVIDIA, 0, services=["fabricmanager"])
    (node.places.run / "nvidia/load-order").write_text("")
    lay_gpus(node.places, {})
    (node.places.proc / "driver/nvidia-nvswitch/devices/0000:10:00.0").mkdir(parents=True)
    node.offered.add("sim-gpu0")
    assert node.look("nvidia", NVIDIA, expected=1).reason is Reason.DONE
