"""The program `service` of a driver image, on a node whose kernel is played; the services are small shell programs."""

import json
import os
import shutil
import signal
import time
from contextlib import contextmanager

import pytest

from tests.support.module_image import ModuleImage
from tests.support.programs import soon, started
from upgrader.node.driver.loaded_driver import read_loaded_driver

DRIVER = "535.309.01"
SERVICES = (
    f"fabricmanager {DRIVER} exact required usr/bin/nv-fabricmanager",
    "persistenced 535.171.04 branch optional usr/bin/nvidia-persistenced",
    f"imex {DRIVER} exact required usr/bin/nvidia-imex",
)
FOREGROUND = """#!/bin/sh
echo "$0 $*" >> "$SYS/started"
[ ! -e "$SYS/broken" ] || { echo "it is broken"; exit 3; }
exec sleep 300
"""
DAEMON = """#!/bin/sh
echo "$0 $*" >> "$SYS/started"
[ ! -e "$SYS/broken" ] || exit 1
run=${0%/var/lib/*}/run/nvidia-persistenced; mkdir -p "$run"
sleep 300 & echo $! > "$run/nvidia-persistenced.pid"
"""
CONFIG = "LOG_FILE_NAME=/var/log/fabricmanager.log\nDAEMONIZE=1\nTOPOLOGY_FILE_PATH=/usr/share/nvidia/nvswitch\n"
RUNS = {"BEAT": "0.1", "SETTLE": "0.1", "RETRY": "0.1"}


@pytest.fixture(params=["system", "busybox"])
def image(request, tmp_path):
    """An image with all services. `busybox`: its commands, with the limits of ModuleImage."""
    program = shutil.which("busybox") or ""
    if request.param == "busybox" and not program:
        pytest.skip("busybox is not installed")
    image = ModuleImage(
        tmp_path,
        vendor="nvidia",
        version=DRIVER,
        modules=(("nvidia", ""),),
        services=SERVICES,
        busybox=program if request.param == "busybox" else "",
    )
    files = image.driver / "files"
    for name, text in {
        "nv-fabricmanager": FOREGROUND,
        "nvidia-imex": FOREGROUND,
        "nvidia-persistenced": DAEMON,
    }.items():
        (files / "usr/bin").mkdir(parents=True, exist_ok=True)
        (files / "usr/bin" / name).write_text(text)
        (files / "usr/bin" / name).chmod(0o755)
    for name in ("usr/share/nvidia/nvswitch/fabricmanager.cfg", "etc/nvidia-imex/config.cfg"):
        (files / name).parent.mkdir(parents=True)
        (files / name).write_text(CONFIG)
    (files / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    return image


def add_switches(image):
    (image.proc / "driver/nvidia-nvswitch/devices/0000:05:00.0").mkdir(parents=True)


def add_gpu(image):
    (image.proc / "driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)


def add_imex(image):
    with (image.proc / "devices").open("a") as devices:
        devices.write("236 nvidia-caps-imex-channels\n")
    (image.host / "etc/nvidia-imex").mkdir(parents=True)
    (image.host / "etc/nvidia-imex/nodes_config.cfg").write_text("10.0.0.1\n")


NEEDS = {"fabricmanager": add_switches, "persistenced": add_gpu, "imex": add_imex}


def state_of(image, name):
    """(state, reason) as the service has recorded it."""
    file = image.state / "services" / f"{name}.json"
    record = json.loads(file.read_text()) if file.exists() else {"state": "", "reason": ""}
    return record["state"], record["reason"]


@contextmanager
def serving(image, name):
    log = image.folder / f"{name}.log"
    command = ["/bin/sh", str(image.driver / "service"), name]
    with started(command, log=log, env=image.env | RUNS) as program:
        yield program
        program.signal(signal.SIGTERM)
        assert program.wait() == 143


def calls(image):
    file = image.sys / "started"
    return file.read_text().splitlines() if file.exists() else []


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_service_waits_for_its_driver_and_runs_until_it_is_stopped(image, name):
    NEEDS[name](image)
    with serving(image, name):
        soon(lambda: state_of(image, name) == ("Waiting", f"{DRIVER} is not loaded yet"))
        assert image.program("service", name, "ready").code == 1
        image.load()
        soon(lambda: state_of(image, name)[0] == "Running")
        assert image.program("service", name, "ready").code == 0
        assert len(calls(image)) == 1
        pid = int(state_of(image, name)[1].rpartition("pid ")[2].rstrip(")"))
        assert is_alive(pid)
    assert state_of(image, name) == ("Waiting", "stopped")
    assert not is_alive(pid)
    assert image.unload().code == 0


def test_a_service_that_runs_is_seen_by_the_time_of_its_file(image):
    add_switches(image)
    image.load()
    file = image.state / "services/fabricmanager.json"
    with serving(image, "fabricmanager"):
        soon(lambda: state_of(image, "fabricmanager")[0] == "Running")
        os.utime(file, (1, 1))
        soon(lambda: time.time() - file.stat().st_mtime < 60)


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_service_that_the_node_does_not_need_is_not_started(image, name):
    image.load()
    with serving(image, name):
        soon(lambda: state_of(image, name)[0] == "Idle")
        assert image.program("service", name, "ready").code == 0
    assert calls(image) == []


@pytest.mark.parametrize("name", ["fabricmanager", "imex"])
def test_a_required_service_of_another_version_is_not_started(image, name):
    NEEDS[name](image)
    image.load()
    (image.sys / "module/nvidia/version").write_text("535.261.03\n")
    ended = image.program("service", name)
    assert (ended.code, calls(image)) == (11, [])
    reason = f"{name} {DRIVER} does not fit the loaded module nvidia 535.261.03"
    assert state_of(image, name) == ("Failed", reason)
    assert image.program("service", name, "ready").code == 1


def test_persistenced_of_another_branch_is_not_started_and_does_not_end(image):
    add_gpu(image)
    image.load()
    (image.sys / "module/nvidia/version").write_text("550.163.01\n")
    with serving(image, "persistenced"):
        soon(lambda: state_of(image, "persistenced")[0] == "Failed")
    assert calls(image) == []


@pytest.mark.parametrize("name", ["fabricmanager", "imex"])
def test_the_end_of_a_required_program_ends_its_container(image, name):
    NEEDS[name](image)
    image.load()
    (image.sys / "broken").touch()
    assert image.program("service", name).code == 18
    assert state_of(image, name)[0] == "Failed"


def test_an_optional_program_that_ends_is_started_again(image):
    add_gpu(image)
    image.load()
    (image.sys / "broken").touch()
    with serving(image, "persistenced"):
        soon(lambda: len(calls(image)) > 2)
        (image.sys / "broken").unlink()
        soon(lambda: state_of(image, "persistenced")[0] == "Running")


def test_a_daemon_that_runs_already_is_left_alone(image):
    add_gpu(image)
    image.load()
    file = image.host / "run/nvidia-persistenced/nvidia-persistenced.pid"
    file.parent.mkdir(parents=True)
    file.write_text(f"{os.getpid()}\n")
    with serving(image, "persistenced"):
        soon(lambda: state_of(image, "persistenced")[0] == "Failed")
    assert state_of(image, "persistenced")[1] in {
        f"another nvidia-persistenced runs (pid {os.getpid()})",
        "stopped",
    }
    assert (calls(image), file.exists()) == ([], True)


def test_a_program_gets_a_configuration_for_the_foreground_with_the_data_of_the_image(image):
    add_switches(image)
    image.load()
    with serving(image, "fabricmanager"):
        soon(lambda: state_of(image, "fabricmanager")[0] == "Running")
    current = "/var/lib/gpu-upgrader/drivers/nvidia/current"
    assert [line.partition(" ")[2] for line in calls(image)] == [f"-c {current}/fabricmanager.cfg"]
    assert (image.host / f".{current}/fabricmanager.cfg").read_text() == (
        f"LOG_FILE_NAME=\nDAEMONIZE=0\nTOPOLOGY_FILE_PATH={current}/usr/share/nvidia/nvswitch\n"
    )


def test_the_record_of_the_driver_names_the_services(image):
    image.load()
    assert read_loaded_driver(image.run_folder, "nvidia").services == ("fabricmanager", "persistenced", "imex")


def test_an_unknown_service(image):
    assert image.program("service", "dcgm").code == 19
