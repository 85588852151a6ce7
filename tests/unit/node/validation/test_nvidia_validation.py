"""A driver of NVIDIA on a node that is a folder, with nvidia-smi played: each fault is named with its GPU."""

import pytest
from msgspec import structs

from tests.support.validated_node import (
    ADDRESSES,
    NVIDIA,
    RESOURCE,
    UUIDS,
    ValidatedNode,
    lay_gpus,
    remove_gpu,
)
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.programs import ProgramResult
from upgrader.node.validation.gpu_inspection import FABRIC_SECONDS

MISMATCH, FAILED = Reason.DRIVER_MISMATCH, Reason.DEVICE_FAILED


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
    lay_gpus(places, dict(zip(ADDRESSES, UUIDS, strict=True)))
    node.offered |= set(UUIDS)
    return node


def module(places, name, source, version):
    folder = places.sys / "module" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "srcversion").write_text(f"{source}\n")
    if version:
        (folder / "version").write_text(f"{version}\n")


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
        "model": "2 x NVIDIA H100 80GB HBM3",
        "pcie": "2 x 16x",
        "mig": "2 x Disabled",
        "fabric": "2 x Completed",
        "active NVLinks": "2 x 2",
    }
    current = nvidia.places.drivers / "nvidia" / "current"
    run = [f"{current}/usr/lib", f"{current}/nvidia-smi"]
    assert nvidia.programs.calls == [[*run, "-q", "-x"], [*run, "nvlink", "-s"]]


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


def test_a_gpu_that_the_driver_lost(nvidia):
    remove_gpu(nvidia.places, ADDRESSES[1])
    assert refused(nvidia)[2].startswith(
        "check devices: PciFunctions: the PCI bus has 2 GPU(s), the driver lacks 1: 0000:01:00.0 (nvidia); "
    )


def test_a_gpu_that_fell_off_the_bus(nvidia):
    remove_gpu(nvidia.places, ADDRESSES[1])
    (nvidia.places.sys / "bus/pci/devices" / ADDRESSES[1]).unlink()
    assert refused(nvidia)[2].endswith("the driver has 1 GPU(s), and had 2 when it was loaded")


def test_a_gpu_that_another_driver_has_is_not_expected(nvidia):
    nvidia.record("nvidia", NVIDIA, 1)
    remove_gpu(nvidia.places, ADDRESSES[1])
    driver = nvidia.places.sys / "devices/port1" / ADDRESSES[1] / "driver"
    driver.unlink()
    driver.symlink_to("../../bus/pci/drivers/vfio-pci")
    assert real(nvidia).facts["devices"] == "1"


def test_pci_devices_that_cannot_be_read(nvidia):
    (nvidia.places.sys / "devices/port0" / ADDRESSES[0] / "class").write_text("display\n")
    assert refused(nvidia)[:2] == ("devices", Reason.MISSING)


@pytest.mark.parametrize(
    ("major", "found"), [("510", "major number 1"), ("none", ""), ("1", ""), ("gone", "No such file or directory")]
)
def test_the_device_of_unified_memory(nvidia, major, found):
    lines = {"none": "195 nvidia\n", "gone": "1 nvidia-uvm\n"}
    (nvidia.places.proc / "devices").write_text(lines.get(major, f"{major} nvidia-uvm\n"))
    if major == "gone":
        (nvidia.places.dev / "nvidia-uvm").unlink()
    if found:
        assert f"nvidia-uvm in the kernel, and is: {found}; delete" in refused(nvidia)[2]
    else:
        assert real(nvidia).reason is Reason.DONE


def test_uuids_that_the_driver_does_not_know_before_a_gpu_is_initialized(nvidia):
    for address in ADDRESSES:
        file = nvidia.places.proc / "driver/nvidia/gpus" / address / "information"
        file.write_text(file.read_text().replace("GPU-aaaa", "GPU-????").replace("GPU-bbbb", "GPU-????"))
    assert real(nvidia).facts["devices"] == "2"
    (nvidia.places.dev / "nvidia1").unlink()
    assert refused(nvidia)[2].startswith("check devices: 1 of 2 with faults: GPU-bbbb: ")


def test_every_fault_that_nvidia_smi_reports_is_named_with_its_gpu(nvidia):
    first, second = nvidia.programs.gpus
    nvidia.programs.gpus = [
        structs.replace(first, remap_pending="Yes"),
        structs.replace(second, width="8x", uncorrected={"dram_uncorrectable": "4"}),
    ]
    assert refused(nvidia) == (
        "devices",
        FAILED,
        (
            "check devices: 2 of 2 with faults: "
            "GPU-aaaa: RowRemapPending: GPU 0 (0000:00:00.0) replaces a defective row of its memory at its reset "
            "(pending: Yes); reset it or reboot the node; "
            "GPU-bbbb: PcieWidth: GPU 1 (0000:01:00.0) has 8 of 16 lanes of its PCIe link; power the node off and on, "
            "then reseat the GPU; UncorrectedErrors: GPU 1 (0000:01:00.0) has uncorrected memory errors since the "
            "driver was loaded (dram_uncorrectable 4); reset it or reboot the node"
        ),
    )


def test_gpus_that_are_about_to_join_the_fabric_are_waited_for(nvidia):
    joined, start = nvidia.programs.gpus, nvidia.clock.now
    nvidia.programs.gpus = [structs.replace(gpu, fabric_state="In Progress", fabric_status="") for gpu in joined]
    nvidia.programs.later = [nvidia.programs.gpus, joined]
    assert real(nvidia).facts["fabric"] == "2 x Completed"
    assert nvidia.clock.now - start == 10.0


def test_gpus_that_do_not_join_the_fabric(nvidia):
    nvidia.programs.gpus[0] = structs.replace(nvidia.programs.gpus[0], fabric_state="In Progress", fabric_status="")
    start = nvidia.clock.now
    message = refused(nvidia)[2]
    assert message.startswith("check devices: 1 of 2 with faults: GPU-aaaa: Fabric: GPU 0 (0000:00:00.0) is not part")
    assert "(state In Progress, status none)" in message
    assert nvidia.clock.now - start == FABRIC_SECONDS


def test_nvidia_smi_that_reports_no_links(nvidia):
    nvidia.programs.links_code = 3
    assert real(nvidia).facts["active NVLinks"] == "2 x not reported"


def test_a_report_of_another_driver(nvidia):
    nvidia.programs.version = "1.2"
    assert refused(nvidia) == (
        "devices",
        MISMATCH,
        f"check devices: nvidia-smi reports driver 1.2, loaded is {NVIDIA}",
    )


def test_a_gpu_that_nvidia_smi_does_not_list(nvidia):
    del nvidia.programs.gpus[1]
    assert refused(nvidia)[2] == "check devices: 1 of 2 with faults: GPU-bbbb: nvidia-smi does not list it"


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
        (
            15,
            "Unable to determine the device handle for GPU1: GPU is lost.",
            FAILED,
            "exit code 15: Unable to determine",
        ),
        (0, "no document", FAILED, "the report of nvidia-smi is unreadable"),
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
    for address in ADDRESSES:
        remove_gpu(nvidia.places, address)
        (nvidia.places.sys / "bus/pci/devices" / address).unlink()
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


def test_simulated_devices_on_a_real_driver_are_missed_by_name(nvidia):
    (nvidia.places.run / "sim").mkdir()
    (nvidia.places.run / "sim" / "unhealthy").write_text("sim-gpu1")
    message = nvidia.refused(vendor="nvidia", version=NVIDIA, expected=3)[2]
    assert message.endswith("advertises 2 x nvidia.com/gpu, expected are 3; sim-gpu1 is marked unhealthy (XID 79)")


def test_parameters_of_modules_must_be_in_force(nvidia):
    (nvidia.places.proc / "driver/nvidia/params").write_text("EnableGpuFirmware: 18\n")
    name = "nvidia.NVreg_EnableGpuFirmware"
    assert nvidia.look("nvidia", NVIDIA, parameters={name: "0x12"}).reason is Reason.DONE
    check, reason, _ = nvidia.refused(vendor="nvidia", version=NVIDIA, parameters={name: "0"})
    assert (check, reason) == ("parameters", MISMATCH)
