"""The programs of driver-images/sim, with the system's shell and, where there is one, busybox's as in the image."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.support.programs import soon, started
from tests.support.repository import ROOT
from upgrader.core.node_protocol.orders import NodeDriver, Reason
from upgrader.node.driver.driver_unload import unload_driver
from upgrader.node.driver.loaded_driver import LoadedDriver, read_loaded_driver
from upgrader.node.driver.unload_patience import UnloadPatience
from upgrader.node.host.clock import MonotonicClock
from upgrader.node.host.host import Host
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation import devices
from upgrader.process import run

SHELLS = [["/bin/sh"]] + ([[shutil.which("busybox"), "sh"]] if shutil.which("busybox") else [])
KERNEL = "6.1.0-47-amd64"


class Image:
    """A driver image of one version, and a node (processes and run directory) to load it on."""

    def __init__(self, folder, shell, version="1.0.0", kernel=KERNEL):
        self.folder, self.shell = folder, shell
        self.driver = folder / f"driver-{version}-{kernel}"
        for part in ("sim", "shared"):
            shutil.copytree(ROOT / "driver-images" / part, self.driver, dirs_exist_ok=True)
        manifest = {"vendor": "sim", "version": version, "kernel": kernel, "devices": 3, "simulated": True}
        (self.driver / "manifest.json").write_text(json.dumps(manifest))
        self.run_folder = folder / "host/run/gpu-upgrader"
        self.env = {"DRIVER": str(self.driver), "RUN": str(self.run_folder), "PROC": str(folder / "proc")}

    def program(self, name, *arguments):
        return run([*self.shell, str(self.driver / name), *arguments], timeout=20, env=self.env, check=False)

    def loading(self):
        return started([*self.shell, str(self.driver / "load")], log=self.folder / "load.log", env=self.env)

    def load(self):
        """Load and let the container end, which unloads nothing."""
        record = self.run_folder / "sim/loaded.json"
        log = self.folder / "load.log"
        log.unlink(missing_ok=True)
        with self.loading() as program:
            soon(lambda: record.exists() and log.exists() and "loaded" in log.read_text())
            program.signal(signal.SIGTERM)
            assert program.wait() == 143


@pytest.fixture(params=SHELLS, ids=lambda shell: " ".join(Path(word).name for word in shell))
def image(request, tmp_path):
    kubelet = tmp_path / "proc/77"
    (kubelet / "root/proc/sys/kernel").mkdir(parents=True)
    (kubelet / "root/var/lib/box").mkdir(parents=True)
    (kubelet / "cmdline").write_bytes(
        b"/opt/kubelet\0--kubeconfig\0/etc/k\0--boot-id-file\0/var/none,/var/lib/box/boot-id\0"
    )
    (kubelet / "root/proc/sys/kernel/osrelease").write_text(KERNEL + "\n")
    (kubelet / "root/var/lib/box/boot-id").write_text("boot-1\n")
    proxy = tmp_path / "proc/12"
    proxy.mkdir()
    (proxy / "cmdline").write_bytes(b"kube-proxy\0--kubeconfig=/etc/p\0")
    return Image(tmp_path, request.param)


def record(image):
    return read_loaded_driver(image.run_folder, "sim")


FIELDS = {"vendor": "sim", "version": "535.261.03", "bootId": "", "devices": 8, "what": "a b, c: 1", "none": 0}


@pytest.mark.parametrize("indent", [None, 2], ids=["on one line", "a line each"])
def test_fields_of_a_json_object_are_read_by_the_shell_alone(image, indent):
    file = image.folder / "object.json"
    file.write_text(json.dumps(FIELDS, indent=indent))
    words = " ".join([*FIELDS, "absent"])
    asks = f'. "$DRIVER/lib.sh"; PATH=/nowhere; for name in {words}; do echo "<$(field {file} $name)>"; done'
    told = run([*image.shell, "-c", asks], timeout=20, env=image.env).text.splitlines()
    assert told == [*(f"<{value}>" for value in FIELDS.values()), "<>"]


def reboot(image):
    shutil.rmtree(image.run_folder)
    (image.folder / "proc/77/root/var/lib/box/boot-id").write_text("boot-2\n")


LOADED = LoadedDriver(vendor="sim", version="1.0.0", kernel=KERNEL, boot_id="boot-1", devices=3, simulated=True)


def test_load_records_what_it_loaded_for_which_boot_and_makes_the_devices(image):
    image.load()
    assert record(image) == LOADED
    folder = devices.device_folder(image.run_folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        devices.device_name(number): devices.device_contents("1.0.0", devices.device_name(number)) + "\n"
        for number in range(3)
    }
    assert "simulated, no kernel module" in (image.folder / "load.log").read_text()
    assert not (image.run_folder / "sim/lock").exists()


def test_load_again_changes_nothing(image):
    image.load()
    before = {path: path.stat().st_ino for path in image.run_folder.rglob("*") if path.is_file()}
    image.load()
    assert {path: path.stat().st_ino for path in image.run_folder.rglob("*") if path.is_file()} == before


def test_load_stays_until_it_is_ended(image):
    with image.loading() as program:
        soon(lambda: record(image))
        soon(lambda: "sleep 3600" in str(run(["ps", "-eo", "pid,args"], timeout=10).text))
        assert program.running()


def test_another_version_is_not_loaded_over_the_present_one(image):
    image.load()
    other = Image(image.folder, image.shell, version="2.0.0")
    refused = other.program("load")
    assert refused.code == 11
    assert b"1.0.0 is loaded; a node upgrade must unload it before 2.0.0 is loaded" in refused.stderr
    assert record(image) == LOADED
    assert not (image.run_folder / "sim/lock").exists()
    assert (image.program("probe").code, other.program("probe").code) == (0, 1)


def test_another_kernel_is_refused(image):
    other = Image(image.folder, image.shell, kernel="6.1.0-50-amd64")
    assert other.program("load").code == 10
    assert record(image) is None


def test_without_host_pid_it_says_so(image):
    shutil.rmtree(image.folder / "proc/77")
    refused = image.program("load")
    assert (refused.code, b"needs hostPID" in refused.stderr) == (14, True)


def test_the_probe_knows_a_reboot_and_a_missing_device(image):
    assert image.program("probe").code == 1
    image.load()
    assert image.program("probe").code == 0
    (image.run_folder / "sim/dev/sim-gpu1").unlink()
    assert b"2 of 3 devices" in image.program("probe").stderr
    reboot(image)
    assert b"no driver is loaded" in image.program("probe").stderr
    image.load()
    assert record(image).boot_id == "boot-2"
    assert image.program("probe").code == 0


def test_a_record_of_another_boot_on_a_disk_does_not_count(image):
    image.load()
    (image.folder / "proc/77/root/var/lib/box/boot-id").write_text("boot-2\n")
    assert b"another boot" in image.program("probe").stderr
    image.load()
    assert (record(image).boot_id, image.program("probe").code) == ("boot-2", 0)


def test_the_boot_id_is_the_kernels_own_where_the_kubelet_has_no_flag(image):
    (image.folder / "proc/77/cmdline").write_bytes(b"kubelet\0--kubeconfig=/etc/k\0")
    own = image.folder / "proc/77/root/proc/sys/kernel/random/boot_id"
    own.parent.mkdir()
    own.write_text("from-the-kernel\n")
    image.load()
    assert record(image).boot_id == "from-the-kernel"


def test_prepare_leaves_the_manifest_and_loads_nothing(image):
    (image.folder / "dest").mkdir()
    assert image.program("prepare", str(image.folder / "dest")).code == 0
    assert json.loads((image.folder / "dest/manifest.json").read_text())["version"] == "1.0.0"
    assert record(image) is None


def unloaded(image, version="1.0.0"):
    host = Host(root=image.folder / "host")
    driver = NodeDriver(vendor="sim", version=version)
    return unload_driver(host, driver, SystemPrograms(), MonotonicClock(), patience=UnloadPatience(users=0, removal=60))


def test_the_upgrade_unloads_with_what_the_driver_left_on_the_node(image):
    image.load()
    shutil.rmtree(image.driver)  # its image may be gone
    assert unloaded(image) == "sim 1.0.0 unloaded (simulated)"
    assert unloaded(image) == "sim 1.0.0 was not loaded"
    assert not devices.device_folder(image.run_folder).exists()


def test_without_a_version_whatever_is_loaded_is_unloaded(image):
    image.load()
    assert unloaded(image, version="") == "sim 1.0.0 unloaded (simulated)"
    assert unloaded(image, version="") == "sim driver was not loaded"


def test_a_driver_in_use_is_busy_and_its_holders_are_named(image):
    image.load()
    with (
        (image.run_folder / "sim/dev/sim-gpu1").open("r+"),
        pytest.raises(OrderFailedError, match=rf"pid {os.getpid()} \(") as caught,
    ):
        unloaded(image)
    assert caught.value.reason is Reason.BUSY
    assert record(image) == LOADED
    assert unloaded(image) == "sim 1.0.0 unloaded (simulated)"


def test_an_unload_that_was_killed_half_way_is_finished_by_the_next(image):
    image.load()
    shutil.rmtree(devices.device_folder(image.run_folder))
    assert unloaded(image) == "sim 1.0.0 unloaded (simulated)"


def test_a_lock_of_a_dead_process_is_passed_over_and_one_of_a_living_is_not(image, monkeypatch):
    monkeypatch.setenv("LOCK_TRIES", "3")
    image.load()
    lock = image.run_folder / "sim/lock"
    lock.write_text("999999999 1\n")
    fields = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()
    assert unloaded(image) == "sim 1.0.0 unloaded (simulated)"
    image.load()
    lock.write_text(f"{os.getpid()} {fields[19]}\n")
    with pytest.raises(OrderFailedError, match=f"held by process {os.getpid()}"):
        unloaded(image)
    lock.write_text(f"{os.getpid()} 1\n")  # the number was given to another process since
    assert unloaded(image) == "sim 1.0.0 unloaded (simulated)"
