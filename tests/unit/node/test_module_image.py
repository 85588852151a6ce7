"""The programs of images with kernel modules, on a node whose kernel is played (tests/support/module_image.py)."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.module_image import KERNEL, ModuleImage
from tests.support.repository import ROOT
from upgrader.core.node_protocol.module_parameters import render_parameters
from upgrader.images.drivers.builder.assembly import COMMANDS
from upgrader.images.product import SIMULATED
from upgrader.node.driver.loaded_driver import LoadedDriver, read_loaded_driver
from upgrader.process import run

NVIDIA = (("nvidia", ""), ("nvidia_modeset", "nvidia"), ("nvidia_uvm", "nvidia"))


@pytest.fixture
def image(tmp_path):
    return ModuleImage(tmp_path)


@pytest.fixture
def nvidia(tmp_path):
    return ModuleImage(tmp_path, vendor="nvidia", version="535.261.03", modules=NVIDIA, in_tree=("drm",))


@pytest.fixture(params=["system", "busybox"])
def busybox(request):
    """The program with the commands of an image; empty for the commands of this machine."""
    program = shutil.which("busybox") or ""
    if request.param == "busybox" and not program:
        pytest.skip("busybox is not installed")
    return program if request.param == "busybox" else ""


def record(image):
    return read_loaded_driver(image.run_folder, image.vendor)


def test_load_puts_the_modules_in_their_order_and_records_it(nvidia):
    nvidia.load()
    assert nvidia.done == ["modprobe drm", "insmod nvidia", "insmod nvidia_modeset", "insmod nvidia_uvm"]
    assert record(nvidia) == LoadedDriver(
        vendor="nvidia", version="535.261.03", kernel=KERNEL, boot_id="boot-1", devices=0
    )
    assert not (nvidia.state / "lock").exists()
    assert nvidia.program("probe").code == 0


def test_load_again_asks_the_kernel_for_nothing(nvidia):
    nvidia.load()
    before = nvidia.done
    nvidia.load()
    assert nvidia.done == before


def test_load_again_brings_what_is_missing(nvidia):
    nvidia.load()
    run([nvidia.folder / "bin/rmmod", "nvidia_uvm"], timeout=5, env=nvidia.env)
    assert b"not all required modules are loaded: nvidia_uvm" in nvidia.program("probe").stderr
    nvidia.load()
    assert nvidia.program("probe").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_device_files_are_made_with_the_kernels_numbers_and_removed_with_the_driver(nvidia):
    (nvidia.proc / "driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    nvidia.load()
    found = {path.name: path.stat() for path in (nvidia.host / "dev").iterdir() if path.name != "char"}
    links = {path.name: path.resolve().name for path in (nvidia.host / "dev/char").iterdir()}
    numbers = {name: (os.major(one.st_rdev), os.minor(one.st_rdev)) for name, one in found.items()}
    assert numbers == {
        "nvidiactl": (195, 255),
        "nvidia0": (195, 0),
        "nvidia-modeset": (195, 254),
        "nvidia-uvm": (511, 0),
        "nvidia-uvm-tools": (511, 1),
    }
    assert links == {f"{major}:{minor}": name for name, (major, minor) in numbers.items()}
    assert all(stat.S_IMODE(one.st_mode) == 0o666 for one in found.values())
    assert record(nvidia).devices == 1
    assert nvidia.unload().code == 0
    assert [path.name for path in (nvidia.host / "dev").rglob("*")] == ["char"]


def test_a_device_that_went_away_fails_the_probe(nvidia):
    gpu = nvidia.proc / "driver/nvidia/gpus/0000:01:00.0"
    gpu.mkdir(parents=True)
    nvidia.load()
    gpu.rmdir()
    assert b"0 of 1 devices exist" in nvidia.program("probe").stderr


def test_another_kernel_is_refused_before_anything_is_touched(image):
    (image.host / "proc/sys/kernel/osrelease").write_text("6.1.0-53-amd64\n")
    refused = image.program("load")
    assert (refused.code, image.done, record(image)) == (10, [], None)
    assert b"for kernel 6.1.0-50-amd64, the node runs 6.1.0-53-amd64" in refused.stderr


def test_another_version_is_not_loaded_over_the_present_one(image):
    image.load()
    other = ModuleImage(image.folder, version="2.0")
    refused = other.program("load")
    assert (refused.code, record(image).version) == (11, "1.0")
    assert not (image.state / "lock").exists()


def test_a_module_that_another_program_has_loaded_is_not_the_drivers(image):
    ModuleImage(image.folder, version="0.9").load()
    shutil.rmtree(image.run_folder)  # nobody knows who loaded it
    refused = image.program("load")
    assert (refused.code, image.done) == (11, ["insmod fakebridge"])
    assert b"module fakebridge 0.9 of another build is loaded" in refused.stderr


def test_what_was_loaded_before_a_refusal_is_unloaded_again(nvidia):
    nvidia.refuse("nvidia_uvm", "Invalid module format")
    refused = nvidia.program("load")
    assert refused.code == 18
    assert b"module nvidia_uvm cannot be loaded" in refused.stderr
    assert b"Invalid module format; [    1.0] NVRM: said by the kernel" in refused.stderr
    assert (nvidia.loaded(), record(nvidia)) == ({"drm"}, None)


FIVE = (*NVIDIA, ("nvidia_drm", "nvidia_modeset"), ("nvidia_peermem", "nvidia"))
OPTIONAL = ("video", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")


@pytest.fixture
def five(tmp_path, busybox):
    return ModuleImage(
        tmp_path,
        vendor="nvidia",
        version="535.261.03",
        modules=FIVE,
        in_tree=("drm", "video"),
        optional=OPTIONAL,
        busybox=busybox,
    )


def test_a_driver_is_loaded_without_an_optional_module_and_records_why(five):
    five.refuse("nvidia_peermem", "Invalid argument")
    five.load()
    assert five.loaded() == {"drm", "video", "nvidia", "nvidia_modeset", "nvidia_uvm", "nvidia_drm"}
    rejected = {"nvidia_peermem": "Invalid argument; [    1.0] NVRM: said by the kernel "}
    assert record(five).not_loaded == rejected
    assert five.program("probe").code == 0
    before = five.done
    five.load()
    assert (five.done, record(five).not_loaded) == (before, rejected)
    assert five.unload().code == 0
    assert five.loaded() == {"drm", "video"}


def test_what_needs_a_rejected_module_is_rejected_too_and_an_unknown_in_tree_module_is_no_error(five):
    (five.sys / "unknown/video").mkdir(parents=True)
    five.refuse("nvidia_modeset", 'Unknown symbol "acpi_video_get_backlight_type" in module')
    five.load()
    assert five.loaded() == {"drm", "nvidia", "nvidia_uvm", "nvidia_peermem"}
    assert list(record(five).not_loaded) == ["video", "nvidia_modeset", "nvidia_drm"]
    assert "Unknown symbol  acpi_video_get_backlight_type  in module" in record(five).not_loaded["nvidia_modeset"]
    assert five.program("probe").code == 0


def test_an_in_tree_module_that_a_required_module_depends_on_must_be_loaded(five):
    (five.sys / "unknown/drm").mkdir(parents=True)
    refused = five.program("load")
    assert (refused.code, five.loaded(), record(five)) == (14, set(), None)
    assert b"modprobe of in-tree module drm failed on the node" in refused.stderr


def test_a_required_module_that_is_rejected_unloads_optional_ones_too(five):
    five.refuse("nvidia_uvm", "Invalid module format")
    refused = five.program("load")
    assert (refused.code, five.loaded(), record(five)) == (18, {"drm", "video"}, None)


def test_modules_are_loaded_with_the_parameters_that_an_upgrade_has_written(nvidia):
    file = nvidia.host / "var/lib/gpu-upgrader/drivers/nvidia/parameters"
    file.parent.mkdir(parents=True)
    values = {"nvidia.NVreg_RegistryDwords": "RMa=1;RMb=0x2", "nvidia.NVreg_X": "1", "nvidia_uvm.y": "0"}
    file.write_text(render_parameters(values))
    nvidia.load()
    loads = [line for line in nvidia.done if line.startswith("insmod nvidia")]
    assert loads == [
        "insmod nvidia NVreg_RegistryDwords=RMa=1;RMb=0x2 NVreg_X=1",
        "insmod nvidia_modeset",
        "insmod nvidia_uvm y=0",
    ]
    assert file.exists()


@pytest.mark.parametrize("program", ["load", "prepare"])
def test_a_damaged_module_is_seen_before_it_is_loaded(image, program):
    (image.driver / "fakebridge.ko").write_text("name=fakebridge\n")
    refused = image.program(program, *([str(image.folder)] if program == "prepare" else []))
    assert (refused.code, image.done) == (12, [])


def test_a_reboot_is_known_and_the_driver_loaded_anew(image):
    image.load()
    image.reboot()
    assert b"no driver is loaded" in image.program("probe").stderr
    image.load()
    assert record(image).boot_id == "boot-2"
    assert image.program("probe").code == 0


def test_prepare_leaves_the_manifest_and_loads_nothing(image):
    (image.folder / "dest").mkdir()
    assert image.program("prepare", str(image.folder / "dest")).code == 0
    assert json.loads((image.folder / "dest/manifest.json").read_text())["version"] == "1.0"
    assert image.done == []


def test_unload_goes_backwards_and_needs_no_image(nvidia):
    nvidia.load()
    shutil.rmtree(nvidia.driver)
    ended = nvidia.unload()
    assert (ended.code, ended.text) == (0, "unloaded")
    assert nvidia.done[-3:] == ["rmmod nvidia_uvm", "rmmod nvidia_modeset", "rmmod nvidia"]
    assert (record(nvidia), nvidia.unload().text) == (None, "no driver was loaded")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_a_process_that_holds_a_device_is_named_and_nothing_is_unloaded(nvidia):
    nvidia.load()
    holder = nvidia.proc / "4711"
    (holder / "fd").mkdir(parents=True)
    (holder / "fd/3").symlink_to(nvidia.host / "dev/nvidiactl")
    (holder / "comm").write_text("python3\n")
    ended = nvidia.unload()
    assert (ended.code, ended.text) == (15, "pid 4711 (python3)")
    assert nvidia.loaded() == {"drm", "nvidia", "nvidia_modeset", "nvidia_uvm"}
    assert nvidia.program("probe").code == 0
    shutil.rmtree(holder)
    assert nvidia.unload().code == 0


def test_a_process_that_has_a_device_mapped_and_closed_is_named_too(nvidia):
    nvidia.load()
    (nvidia.proc / "4711").mkdir()
    (nvidia.proc / "4711/maps").write_text("7f0000000000-7f0000001000 rw-s 00000000 00:05 12 /dev/nvidia0\n")
    (nvidia.proc / "4711/comm").write_text("train\n")
    assert nvidia.unload().text == "pid 4711 (train)"


def test_a_module_that_something_unseen_refers_to_is_busy(nvidia):
    nvidia.load()
    (nvidia.sys / "module/nvidia_uvm/refcnt").write_text("2\n")
    ended = nvidia.unload()
    assert ended.code == 15
    assert "module nvidia_uvm cannot be unloaded" in ended.text
    assert "references: 2" in ended.text
    assert record(nvidia) is not None


def test_an_unload_that_was_killed_half_way_is_finished_by_the_next(nvidia):
    nvidia.load()
    run([nvidia.folder / "bin/rmmod", "nvidia_uvm"], timeout=5, env=nvidia.env)
    assert nvidia.unload().code == 0
    assert nvidia.loaded() == {"drm"}


def test_libraries_and_firmware_come_to_the_node_per_build_and_current_leads_to_them(nvidia):
    (nvidia.driver / "files/lib/firmware/nvidia/535.261.03").mkdir(parents=True)
    (nvidia.driver / "files/usr/bin").mkdir(parents=True)
    (nvidia.driver / "files/usr/bin/nvidia-smi").write_text("tool")
    nvidia.load()
    place = nvidia.host / "var/lib/gpu-upgrader/drivers/nvidia"
    assert (place / "current/usr/bin/nvidia-smi").read_text() == "tool"
    assert not (place / "current").is_symlink()
    path = (nvidia.sys / "module/firmware_class/parameters/path").read_text()
    assert path == "/var/lib/gpu-upgrader/drivers/nvidia/current/lib/firmware"


def shipping(folder, version):
    """An image with a library of its version."""
    image = ModuleImage(folder, vendor="nvidia", version=version, modules=NVIDIA)
    (image.driver / "files/usr/lib").mkdir(parents=True)
    (image.driver / "files/usr/lib/libcuda.so").write_text(version)
    return image


def test_current_has_the_files_of_the_loaded_build_and_only_the_build_before_is_kept(tmp_path):
    for version in ("1.0", "2.0", "3.0"):
        image = shipping(tmp_path, version)
        image.load()
        assert image.unload().code == 0
    place = image.host / "var/lib/gpu-upgrader/drivers/nvidia"
    assert {path.name: (path / "usr/lib/libcuda.so").read_text() for path in place.iterdir()} == {
        "current": "3.0",
        "2.0-0123456789abcdef": "2.0",
    }


def test_a_swap_of_files_that_was_killed_between_its_two_renames_is_completed(tmp_path):
    image = shipping(tmp_path, "1.0")
    image.load()
    place = image.host / "var/lib/gpu-upgrader/drivers/nvidia"
    (place / "current").rename(place / "1.0-0123456789abcdef")
    image.load()
    assert {path.name for path in place.iterdir()} == {"current"}


def test_a_link_of_an_earlier_version_of_the_operator_is_replaced(tmp_path):
    image = shipping(tmp_path, "1.0")
    place = image.host / "var/lib/gpu-upgrader/drivers/nvidia"
    shutil.copytree(image.driver / "files", place / "1.0-0123456789abcdef")
    (place / "current").symlink_to("1.0-0123456789abcdef")
    image.load()
    assert (place / "current/usr/lib/libcuda.so").read_text() == "1.0"
    assert not (place / "current").is_symlink()


@pytest.mark.parametrize("left", ["/run/nvidia/driver/lib/firmware", "/opt/gone"])
def test_a_firmware_path_that_is_nvidias_or_leads_nowhere_is_replaced_until_the_driver_is_unloaded(nvidia, left):
    (nvidia.driver / "files/lib/firmware").mkdir(parents=True)
    parameter = nvidia.sys / "module/firmware_class/parameters/path"
    parameter.write_text(left)
    nvidia.load()
    assert parameter.read_text() == "/var/lib/gpu-upgrader/drivers/nvidia/current/lib/firmware"
    nvidia.load()
    assert nvidia.unload().code == 0
    assert parameter.read_text() == left


def test_a_firmware_path_that_another_program_has_set_is_left_alone(nvidia):
    (nvidia.driver / "files/lib/firmware").mkdir(parents=True)
    (nvidia.host / "opt/firmware").mkdir(parents=True)
    parameter = nvidia.sys / "module/firmware_class/parameters/path"
    parameter.write_text("/opt/firmware")
    refused = nvidia.program("load")
    assert (refused.code, parameter.read_text(), nvidia.loaded()) == (18, "/opt/firmware", set())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_a_device_file_with_the_number_of_an_earlier_driver_is_made_anew(nvidia):
    os.mknod(nvidia.host / "dev/nvidia-uvm", stat.S_IFCHR | 0o600, os.makedev(510, 0))
    nvidia.load()
    status = (nvidia.host / "dev/nvidia-uvm").stat()
    assert (os.major(status.st_rdev), stat.S_IMODE(status.st_mode)) == (511, 0o666)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_switches_have_device_files(nvidia):
    with (nvidia.proc / "devices").open("a") as devices:
        devices.write("234 nvidia-nvswitch\n")
    for switch in ("0000:05:00.0", "0000:06:00.0"):
        (nvidia.proc / "driver/nvidia-nvswitch/devices" / switch).mkdir(parents=True)
    nvidia.load()
    files = sorted((nvidia.host / "dev").glob("nvidia-nvswitch*"))
    numbers = {path.name: (os.major(path.stat().st_rdev), os.minor(path.stat().st_rdev)) for path in files}
    assert numbers == {"nvidia-nvswitch0": (234, 0), "nvidia-nvswitch1": (234, 1), "nvidia-nvswitchctl": (234, 255)}


def test_busybox_has_every_command_that_the_programs_call():
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed")
    known = set(run([busybox, "--list"], timeout=10).text.split())
    assert set(COMMANDS) <= known


def test_the_programs_are_understood_by_busybox_too():
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed")
    images = Path(ROOT, "driver-images")
    programs = [one for name in ("modules", "modules/devices", "shared") for one in (images / name).iterdir()]
    programs = [one for one in programs if one.is_file() and one.name != "Containerfile"]
    for path in sorted([*programs, *(images / "sim" / name for name in SIMULATED)]):
        assert run([busybox, "sh", "-n", path], timeout=10).code == 0
