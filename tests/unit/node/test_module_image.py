"""The programs of images with kernel modules, on a node whose kernel is played (tests/support/module_image.py)."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.module_image import KERNEL, ModuleImage
from tests.support.repository import ROOT
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
    assert b"not all modules are loaded: nvidia_uvm" in nvidia.program("probe").stderr
    nvidia.load()
    assert nvidia.program("probe").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_device_files_are_made_with_the_kernels_numbers_and_removed_with_the_driver(nvidia):
    (nvidia.proc / "driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    nvidia.load()
    found = {path.name: path.stat() for path in (nvidia.host / "dev").iterdir()}
    numbers = {name: (os.major(one.st_rdev), os.minor(one.st_rdev)) for name, one in found.items()}
    assert numbers == {
        "nvidiactl": (195, 255),
        "nvidia0": (195, 0),
        "nvidia-modeset": (195, 254),
        "nvidia-uvm": (511, 0),
        "nvidia-uvm-tools": (511, 1),
    }
    assert all(stat.S_IMODE(one.st_mode) == 0o666 for one in found.values())
    assert record(nvidia).devices == 1
    assert nvidia.unload().code == 0
    assert list((nvidia.host / "dev").iterdir()) == []


def test_a_device_that_went_away_fails_the_probe(nvidia):
    gpu = nvidia.proc / "driver/nvidia/gpus/0000:01:00.0"
    gpu.mkdir(parents=True)
    nvidia.load()
    gpu.rmdir()
    assert b"0 of 1 devices are there" in nvidia.program("probe").stderr


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


def test_a_module_that_somebody_else_has_loaded_is_not_taken_for_ours(image):
    ModuleImage(image.folder, version="0.9").load()
    shutil.rmtree(image.run_folder)  # nobody knows who loaded it
    refused = image.program("load")
    assert (refused.code, image.done) == (11, ["insmod fakebridge"])
    assert b"module fakebridge 0.9 is loaded and is not this image's" in refused.stderr


def test_what_was_loaded_before_a_refusal_is_unloaded_again(nvidia):
    module = nvidia.driver / "nvidia_uvm.ko"
    module.write_text(module.read_text() + "refused=Invalid module format\n")
    run(["sh", "-c", "sha256sum *.ko > modules.sha256"], timeout=5, cwd=nvidia.driver)
    refused = nvidia.program("load")
    assert refused.code == 18
    assert b"nvidia_uvm is not loaded" in refused.stderr
    assert b"Invalid module format; [    1.0] NVRM: said by the kernel" in refused.stderr
    assert (nvidia.loaded(), record(nvidia)) == ({"drm"}, None)


@pytest.mark.parametrize("program", ["load", "prepare"])
def test_a_damaged_module_is_seen_before_it_is_loaded(image, program):
    (image.driver / "fakebridge.ko").write_text("name=fakebridge\n")
    refused = image.program(program, *([str(image.folder)] if program == "prepare" else []))
    assert (refused.code, image.done) == (12, [])


def test_a_reboot_is_known_and_the_driver_loaded_anew(image):
    image.load()
    image.reboot()
    assert b"nothing is loaded" in image.program("probe").stderr
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
    assert "module nvidia_uvm stays" in ended.text
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
    assert (place / "current").readlink() == Path("535.261.03-0123456789abcdef")
    path = (nvidia.sys / "module/firmware_class/parameters/path").read_text()
    assert path == "/var/lib/gpu-upgrader/drivers/nvidia/535.261.03-0123456789abcdef/lib/firmware"


def test_a_firmware_path_that_somebody_else_has_set_is_left_alone(nvidia):
    (nvidia.driver / "files/lib/firmware").mkdir(parents=True)
    parameter = nvidia.sys / "module/firmware_class/parameters/path"
    parameter.write_text("/opt/firmware")
    refused = nvidia.program("load")
    assert (refused.code, parameter.read_text(), nvidia.loaded()) == (18, "/opt/firmware", set())


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
