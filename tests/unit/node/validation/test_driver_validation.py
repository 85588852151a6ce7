"""Every device of a node is looked at, and the check that fails is named; the node is a folder."""

import pytest

from tests.support.validated_node import RESOURCE, ValidatedNode
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.host.task_result import OrderFailedError

MISMATCH, FAILED = Reason.DRIVER_MISMATCH, Reason.DEVICE_FAILED


@pytest.fixture
def sim(tmp_path):
    node = ValidatedNode(tmp_path)
    node.record("sim", "2.0.0", 3, simulated=True)
    for number in range(3):
        name = f"sim-gpu{number}"
        (node.places.run / "sim" / "dev" / name).write_text(f"sim 2.0.0 {name} simulated\n")
        node.offered.add(name)
    return node


def test_a_node_that_is_well(sim):
    assert sim.look(expected=3) == OrderResult(
        reason=Reason.DONE,
        message="sim 2.0.0 (simulated): 3 healthy device(s), 3 x nvidia.com/gpu advertised",
        facts={"driver": "2.0.0", "devices": "3"},
    )


@pytest.mark.parametrize(
    ("order", "shown"),
    [
        ({"version": "1.0.0"}, "sim 2.0.0 is loaded, expected is sim 1.0.0"),
        ({"boot_id": "boot-2"}, "the record is stale"),
        ({"vendor": "nvidia"}, "no driver of nvidia is loaded"),
    ],
)
def test_the_driver(sim, order, shown):
    check, reason, message = sim.refused(**order)
    assert (check, reason) == ("driver", MISMATCH)
    assert shown in message


def test_whichever_driver_on_whichever_boot_as_before_a_job(sim):
    assert sim.look(version="", boot_id="").facts["driver"] == "2.0.0"


def test_every_device_that_is_not_well_is_named(sim):
    dev = sim.places.run / "sim" / "dev"
    (dev / "sim-gpu0").write_text("broken")
    (dev / "sim-gpu1").unlink()
    (sim.places.run / "sim" / "unhealthy").write_text("sim-gpu2 63")
    assert sim.refused() == (
        "devices",
        FAILED,
        (
            "check devices: 3 of 3 with faults: sim-gpu0: contains 'broken' instead of 'sim 2.0.0 sim-gpu0 simulated'; "
            "sim-gpu1: cannot be opened: No such file or directory; sim-gpu2: marked unhealthy (XID 63)"
        ),
    )


def test_a_device_that_the_plugin_calls_unhealthy_is_not_offered(sim):
    sim.offered.remove("sim-gpu1")
    check, reason, message = sim.refused()
    assert (check, reason) == ("offered", FAILED)
    assert "does not advertise sim-gpu1: unhealthy or unknown" in message


def test_a_shared_device_is_offered_several_times(sim):
    sim.offered = {f"sim-gpu{number}::{offer}" for number in range(3) for offer in range(2)}
    assert sim.look(expected=6).message.endswith("6 x nvidia.com/gpu advertised")
    sim.offered.remove("sim-gpu1::1")
    assert "advertises 5 x nvidia.com/gpu, expected are 6" in sim.refused(expected=6)[2]


def test_fewer_than_there_were(sim):
    assert sim.refused(expected=4)[2] == "check offered: the kubelet advertises 3 x nvidia.com/gpu, expected are 4"


def test_a_kubelet_that_is_just_starting_is_waited_for(sim):
    calls = iter([None, {}, dict.fromkeys(sim.offered, RESOURCE)])

    def answers():
        now = next(calls)
        if now is None:
            raise OrderFailedError(Reason.MISSING, "the kubelet does not list its devices")
        return now

    sim.answers = answers
    assert sim.look().reason is Reason.DONE


def test_a_kubelet_that_never_says_what_it_offers(sim):
    def silent():
        raise OrderFailedError(Reason.MISSING, "the kubelet does not list its devices")

    sim.answers = silent
    assert sim.refused() == ("offered", FAILED, "check offered: the kubelet does not list its devices")


def test_a_vendor_of_whose_devices_nothing_is_known(tmp_path):
    node = ValidatedNode(tmp_path)
    node.record("other", "1", 1, simulated=True)
    assert node.refused(vendor="other", version="1")[:2] == ("devices", Reason.BAD_ORDER)


def listed(node, script):
    node.record("other", "1", 2, simulated=True)
    (node.places.run / "other" / "devices").write_text(script)
    node.programs = SystemPrograms()
    node.offered |= {"a", "b"}
    return node


def test_a_driver_of_another_vendor_lists_its_devices(tmp_path):
    node = listed(ValidatedNode(tmp_path), "echo warming up >&2; echo ok a; echo ok b")
    assert node.look(vendor="other", version="1", expected=2).facts["devices"] == "2"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo ok a; echo fault b it is hot", "1 of 2 with faults: b: it is hot"),
        ("echo cannot open /dev/x; exit 3", "ended with exit code 3: cannot open /dev/x"),
        ("true", "lists 0 devices, 1 to 1024 are expected"),
        ("for n in $(seq 1025); do echo ok $n; done", "lists 1025 devices, 1 to 1024 are expected"),
        (f"echo fault b {'x' * 5000}", f"b: {'x' * 200}"),
    ],
)
def test_what_a_driver_of_another_vendor_lists_is_checked(tmp_path, script, message):
    check, reason, text = listed(ValidatedNode(tmp_path), script).refused(vendor="other", version="1")
    assert (check, reason) == ("devices", Reason.DEVICE_FAILED)
    assert text.endswith(message)
