"""Every device of a node is looked at, and the check that fails is named; the node is a folder."""

import pytest

from tests.support.validated_node import NVIDIA, RESOURCE, UUIDS, ValidatedNode
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.node.host.programs import ProgramResult, SystemPrograms
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


@pytest.fixture
def nvidia(tmp_path):
    node = ValidatedNode(tmp_path)
    places = node.places
    node.record("nvidia", NVIDIA, 2)
    (places.run / "nvidia" / "load-order").write_text(
        "in-tree drm\nmodule nvidia AAA m/nvidia.ko\nmodule extra BBB m/e.ko\n"
    )
    module(places, "nvidia", "AAA", NVIDIA)
    module(places, "extra", "BBB", None)
    library = places.drivers / "nvidia" / "x" / "usr" / "lib"
    library.mkdir(parents=True)
    (places.drivers / "nvidia" / "current").symlink_to("x")
    for name in ("libcuda.so", "libnvidia-ml.so"):
        (library / f"{name}.{NVIDIA}").write_text("")
        (library / f"{name}.1").symlink_to(f"{name}.{NVIDIA}")
    (places.drivers / "nvidia" / "x" / "nvidia-smi").write_text("")
    for number, uuid in enumerate(UUIDS):
        about = places.proc / "driver" / "nvidia" / "gpus" / f"0000:0{number}:00.0"
        about.mkdir(parents=True)
        (about / "information").write_text(f"Model: \t\t H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n")
        (places.dev / f"nvidia{number}").write_text("")
    (places.dev / "nvidiactl").write_text("")
    node.offered |= set(UUIDS)
    return node


def module(places, name, source, version):
    folder = places.sys / "module" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "srcversion").write_text(f"{source}\n")
    if version:
        (folder / "version").write_text(f"{version}\n")


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


def test_simulated_devices_on_a_real_driver_are_missed_by_name(nvidia):
    (nvidia.places.run / "sim").mkdir()
    (nvidia.places.run / "sim" / "unhealthy").write_text("sim-gpu1")
    message = nvidia.refused(vendor="nvidia", version=NVIDIA, expected=3)[2]
    assert message.endswith("advertises 2 x nvidia.com/gpu, expected are 3; sim-gpu1 is marked unhealthy (XID 79)")


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


# ---- a real driver


def real(node, **order):
    return node.look(vendor="nvidia", version=NVIDIA, **order)


def refused(node):
    return node.refused(vendor="nvidia", version=NVIDIA)


def test_a_real_driver_that_is_well(nvidia):
    result = real(nvidia, expected=2)
    assert result.message == f"nvidia {NVIDIA}: 2 healthy device(s), 2 x nvidia.com/gpu advertised"
    assert result.facts == {
        "driver": NVIDIA,
        "devices": "2",
        "library": f"2 of {NVIDIA}",
        "nvidia-smi": "0",
    }
    places, tool = nvidia.programs.words[-2:]
    assert places.endswith("/current/usr/lib")
    assert tool.endswith("/current/nvidia-smi")


@pytest.mark.parametrize(
    ("source", "version", "shown"),
    [
        ("CCC", NVIDIA, "module nvidia is from another build (srcversion CCC instead of AAA)"),
        ("AAA", "535.309.01", f"module nvidia has version 535.309.01, the driver {NVIDIA}"),
    ],
)
def test_another_module(nvidia, source, version, shown):
    module(nvidia.places, "nvidia", source, version)
    assert refused(nvidia) == ("module", MISMATCH, f"check module: {shown}")


def test_every_module_that_is_away_is_named(nvidia):
    (nvidia.places.sys / "module" / "nvidia").rename(nvidia.places.sys / "a")
    (nvidia.places.sys / "module" / "extra").rename(nvidia.places.sys / "b")
    assert refused(nvidia)[2] == "check module: module nvidia is not loaded; module extra is not loaded"


def test_an_optional_module_that_is_away_is_named_in_the_result(nvidia):
    order = nvidia.places.run / "nvidia" / "load-order"
    order.write_text(
        "in-tree drm required\nmodule nvidia AAA m/nvidia.ko required\nmodule extra BBB m/e.ko optional\n"
        "module nvidia_peermem CCC m/p.ko optional\n"
    )
    nvidia.record("nvidia", NVIDIA, 2, notLoaded={"nvidia_peermem": "Invalid argument"})
    before = nvidia.look("nvidia", NVIDIA, expected=2)
    (nvidia.places.sys / "module" / "extra").rename(nvidia.places.sys / "b")
    after = nvidia.look("nvidia", NVIDIA, expected=2)
    assert before.facts["modules not loaded"] == "nvidia_peermem"
    assert before.message.endswith("; without nvidia_peermem (Invalid argument)")
    assert after.message == before.message.replace(
        "; without nvidia_peermem", "; without extra (it is gone since the driver was loaded); without nvidia_peermem"
    )


def test_an_optional_module_of_another_build(nvidia):
    order = nvidia.places.run / "nvidia" / "load-order"
    order.write_text("module nvidia AAA m/nvidia.ko required\nmodule extra DDD m/e.ko optional\n")
    assert refused(nvidia)[2].startswith("check module: module extra is from another build")


def test_a_record_without_its_modules(nvidia):
    (nvidia.places.run / "nvidia" / "load-order").unlink()
    assert refused(nvidia)[:2] == ("module", MISMATCH)


def test_a_library_of_another_version_than_the_module(nvidia):
    library = nvidia.places.drivers / "nvidia" / "x" / "usr" / "lib"
    (library / "libcuda.so.535.309.01").write_text("")
    check, reason, message = refused(nvidia)
    assert (check, reason) == ("devices", MISMATCH)
    assert (
        f"libcuda.so.535.309.01 in {nvidia.places.drivers}/nvidia/current has another version than the loaded module"
        in message
    )


def test_current_leads_nowhere(nvidia):
    (nvidia.places.drivers / "nvidia" / "x").rename(nvidia.places.drivers / "nvidia" / "y")
    assert "contains no library of the driver" in refused(nvidia)[2]


def test_a_driver_image_without_libraries(nvidia):
    (nvidia.places.drivers / "nvidia" / "current").unlink()
    facts = real(nvidia).facts
    assert (facts["library"], facts["nvidia-smi"]) == ("none on the node", "not on the node")


def test_a_gpu_that_does_not_open_is_named(nvidia):
    (nvidia.places.dev / "nvidia1").unlink()
    message = refused(nvidia)[2]
    assert message.startswith("check devices: 1 of 2 with faults: GPU-bbbb: ")
    assert "nvidia1 cannot be opened" in message


def test_a_gpu_that_fell_off_the_bus(nvidia):
    (nvidia.places.proc / "driver/nvidia/gpus/0000:01:00.0/information").unlink()
    (nvidia.places.proc / "driver/nvidia/gpus/0000:01:00.0").rmdir()
    assert "the driver has 1 GPU(s), and had 2 when it was loaded" in refused(nvidia)[2]


def test_no_control_device(nvidia):
    (nvidia.places.dev / "nvidiactl").unlink()
    assert "nvidiactl cannot be opened" in refused(nvidia)[2]


# Exit codes and texts as nvidia-smi of 535 gave them on a machine without a GPU.
@pytest.mark.parametrize(
    ("code", "output", "reason", "shown"),
    [
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", MISMATCH, "no driver in"),
        (18, "Failed to initialize NVML: Driver/library version mismatch", MISMATCH, "another version than the module"),
        (
            255,
            "Failed to initialize NVML: Unknown Error",
            FAILED,
            "ended with exit code 255: Failed to initialize NVML",
        ),
        (0, f"GPU-aaaa, {NVIDIA}\n", FAILED, "1 of 2 with faults: GPU-bbbb: nvidia-smi does not list it"),
        (
            0,
            f"GPU-aaaa, {NVIDIA}\nGPU-bbbb, 1.2\n",
            FAILED,
            f"GPU-bbbb: nvidia-smi reports driver 1.2, loaded is {NVIDIA}",
        ),
    ],
)
def test_what_nvidia_smi_says(nvidia, code, output, reason, shown):
    nvidia.programs.ended = ProgramResult(code=code, output=output)
    check, found, message = refused(nvidia)
    assert (check, found) == ("devices", reason)
    assert shown in message


def test_nvidia_smi_that_hangs(nvidia):
    nvidia.programs.hangs = True
    assert "nvidia-smi cannot be run to its end: did not end within 120 s" in refused(nvidia)[2]


@pytest.mark.parametrize(("code", "reason"), [(255, None), (9, MISMATCH), (18, MISMATCH)])
def test_a_real_driver_without_a_gpu_as_on_our_virtual_nodes(nvidia, code, reason):
    nvidia.record("nvidia", NVIDIA, 0)
    for about in (nvidia.places.proc / "driver/nvidia/gpus").iterdir():
        (about / "information").unlink()
        about.rmdir()
    nvidia.offered = {"sim-gpu0", "sim-gpu1"}
    nvidia.programs.ended = ProgramResult(code=code, output="Failed to initialize NVML: Unknown Error")
    if reason is None:
        assert (
            real(nvidia, expected=2).message == f"nvidia {NVIDIA}: 0 healthy device(s), 2 x nvidia.com/gpu advertised"
        )
    else:
        assert refused(nvidia)[1] is reason


def test_partitions_that_are_resources_of_their_own_are_named(nvidia):
    offered = {"GPU-aaaa": RESOURCE, "MIG-1": "nvidia.com/mig-1g.10gb", "MIG-2": "nvidia.com/mig-1g.10gb"}
    nvidia.answers = lambda: offered
    shown = "1 x nvidia.com/gpu, 2 x nvidia.com/mig-1g.10gb"
    assert real(nvidia, expected=3).message == f"nvidia {NVIDIA}: 2 healthy device(s), {shown} advertised"
    found = nvidia.refused(vendor="nvidia", version=NVIDIA, expected=8)[2]
    assert found == f"check offered: the kubelet advertises {shown}, expected are 8"


def test_parts_of_gpus_are_counted_only(nvidia):
    nvidia.offered = {"MIG-1", "MIG-2", "MIG-3"}
    assert real(nvidia, expected=3).reason is Reason.DONE
    assert (
        "advertises 3 x nvidia.com/gpu, expected are 4"
        in nvidia.refused(vendor="nvidia", version=NVIDIA, expected=4)[2]
    )


def test_parameters_of_modules_must_be_in_force(nvidia):
    (nvidia.places.proc / "driver/nvidia/params").write_text("EnableGpuFirmware: 18\n")
    name = "nvidia.NVreg_EnableGpuFirmware"
    assert nvidia.look("nvidia", NVIDIA, parameters={name: "0x12"}).reason is Reason.DONE
    check, reason, _ = nvidia.refused(vendor="nvidia", version=NVIDIA, parameters={name: "0"})
    assert (check, reason) == ("parameters", MISMATCH)
