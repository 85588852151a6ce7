"""The survey on a node in a folder: one fault at a time is added to a node without any."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.surveyed import ALIASES, KERNEL, SWITCH_ALIAS, SurveyWorld
from upgrader.core.doctor.advice import Severity
from upgrader.core.doctor.node_survey import SurveyReport
from upgrader.node.survey.kubelet_service import parse_span
from upgrader.node.survey.node_survey import CHECKS

HOST_LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.183.01"
FIRMWARE = "sys/module/firmware_class/parameters/path"
ENFORCE = "sys/module/module/parameters/sig_enforce"
LOCKDOWN = "sys/kernel/security/lockdown"
SECTION = "[nvidia-container-cli]"
TOOLKIT = "etc/nvidia-container-runtime/config.toml"


@pytest.fixture
def world(tmp_path):
    return SurveyWorld(tmp_path)


def test_a_node_without_findings(world):
    world.load_own_driver()
    before = sorted(path for path in world.root.rglob("*"))
    assert world.survey() == SurveyReport(
        findings=(),
        facts={
            "operating system": "Debian GNU/Linux 12",
            "kernel": KERNEL,
            "driver": "nvidia 535.261.03",
            "GPUs": "1",
            "module signatures": "not required",
            "cgroup": "v2",
        },
    )
    assert sorted(path for path in world.root.rglob("*")) == before


def test_files_that_are_missing_are_findings_and_no_error(world):
    """The check that needs the file reports it, and hides no other."""
    for file in (world.root / "etc/os-release", world.proc / "cmdline"):
        file.unlink()
    world.write("sys/module/nouveau/refcnt", "1\n")
    assert world.found() == [
        ("NouveauLoaded", "problem", "module nouveau"),
        ("CannotLook", "warning", "operating system"),
        ("CannotLook", "warning", "modules at boot"),
        ("CannotLook", "warning", "module parameters"),
    ]


@pytest.mark.parametrize(
    ("path", "text", "finding"),
    [
        ("etc/os-release", "ID=talos\n", ("OperatingSystem", "problem", "operating system talos")),
        ("sys/module/nouveau/refcnt", "1\n", ("NouveauLoaded", "problem", "module nouveau")),
        ("etc/modprobe.d/nouveau.conf", "# blacklist nouveau\n", ("DriverAtBoot", "problem", "module nouveau")),
        ("etc/modules-load.d/gpu.conf", "nvidia-uvm\n", ("DriverAtBoot", "problem", "module nvidia_uvm")),
        ("etc/modules", "# comment\nnvidia\n", ("DriverAtBoot", "problem", "module nvidia")),
        (f"lib/modules/{KERNEL}/modules.alias", ALIASES, ("DriverAtBoot", "problem", "module nvidia")),
        (
            "etc/modprobe.d/nvidia.conf",
            "options nvidia NVreg_RestrictProfilingToAdminUsers=0 \\\n  NVreg_EnableGpuFirmware=1\n",
            (
                "ModuleParameters",
                "warning",
                "parameters nvidia NVreg_RestrictProfilingToAdminUsers=0 NVreg_EnableGpuFirmware=1",
            ),
        ),
        (HOST_LIBRARY, "", ("HostLibraries", "warning", f"/{HOST_LIBRARY}")),
        (FIRMWARE, "/run/nvidia/driver/lib/firmware\n", ("FirmwarePath", "ok", "firmware path")),
        (FIRMWARE, "/gone\n", ("FirmwarePath", "ok", "firmware path")),
        (FIRMWARE, "/etc\n", ("FirmwarePath", "problem", "firmware path")),
        (ENFORCE, "Y\n", ("ModuleSignature", "warning", "module signatures")),
        (LOCKDOWN, "none [integrity] confidentiality\n", ("ModuleSignature", "warning", "module signatures")),
        ("sys/bus/pci/devices/0000:1c:00.0/class", "nonsense\n", ("CannotLook", "warning", "modules at boot")),
        (TOOLKIT, f"{SECTION}\nroot = '/run/nvidia/driver'\n", ("ContainerToolkit", "problem", f"/{TOOLKIT}")),
        (TOOLKIT, f"{SECTION}\n", ("ContainerToolkit", "warning", f"/{TOOLKIT}")),
        (TOOLKIT, "[nvidia-container-cli\n", ("CannotLook", "warning", "container toolkit")),
        ("etc/cdi/nvidia.yaml", "kind: [\n", ("CannotLook", "warning", "CDI specifications")),
    ],
)
def test_one_file_and_its_finding(world, path, text, finding):
    world.write("sys/bus/pci/devices/0000:1c:00.0/vendor", "0x10de\n")
    world.write(path, text)
    found = world.found()
    assert finding in found
    assert len({check for check, _, _ in found if check != "CannotLook"}) <= 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (FIRMWARE, "\n"),
        (FIRMWARE, "/var/lib/gpu-upgrader/drivers/nvidia/current/lib/firmware\n"),
        (ENFORCE, "N\n"),
        (LOCKDOWN, "[none] integrity confidentiality\n"),
        ("etc/modprobe.d/nouveau.conf", "install nouveau /bin/false\n"),
        ("etc/modules-load.d/gpu.conf", "# nvidia\n; nvidia\n\nloop\n"),
        (TOOLKIT, '[nvidia-container-cli]\nroot = "/var/lib/gpu-upgrader/drivers/nvidia/current"\n'),
        ("etc/cdi/other.yaml", "cdiVersion: 0.6.0\nkind: vendor.com/net\n"),
        ("sys/class/infiniband/mlx5_0/node_guid", "0\n"),
    ],
)
def test_a_file_that_is_no_finding(world, path, text):
    world.write(path, text)
    assert world.found() == []


def test_a_module_that_the_command_line_blacklists(world):
    world.write("etc/modprobe.d/nouveau.conf", "")
    world.write_proc("cmdline", "quiet modprobe.blacklist=pcspkr,nouveau\n")
    assert world.found() == []


def test_a_parameter_of_the_command_line(world):
    world.write_proc("cmdline", "quiet nvidia-drm.modeset=1 nouveau.modeset=0\n")
    assert world.found() == [("ModuleParameters", "warning", "parameters nvidia_drm modeset=1")]


def test_an_installed_module_that_is_blacklisted(world):
    world.write(f"lib/modules/{KERNEL}/modules.alias", ALIASES)
    world.write(f"lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko.xz: kernel/drivers/video.ko\n")
    world.write("etc/modprobe.d/nvidia.conf", "blacklist nvidia\n")
    assert world.found() == [("DriverAtBoot", "warning", "module nvidia")]
    assert "updates/dkms/nvidia.ko.xz" in world.survey().findings[0].message


def test_the_kernel_after_a_reboot_is_examined(world):
    world.write("lib/modules/6.12.0/modules.alias", ALIASES)
    assert world.found(kernel="6.12.0") == [("DriverAtBoot", "problem", "module nvidia")]
    assert world.found() == []


def test_a_kernel_that_requires_signatures_and_an_image_without(world):
    world.write(ENFORCE, "Y\n")
    assert world.found(signed=False) == [("ModuleSignature", "problem", "module signatures")]
    assert world.found(signed=True) == [("ModuleSignature", "warning", "module signatures")]
    assert world.found(signed=False, swaps_driver=False) == []


DEBIAN_CA = "6ccece7e4c6c0d1f6149f3dd27dfcc5cbb419ea1"
KEYS = f"""\
0a2a1b3c I------     1 perm 1f030000     0     0 asymmetri Debian Secure Boot CA: {DEBIAN_CA}: X509.rsa bb419ea1 []
14bf8417 I------     1 perm 1f0b0000     0     0 keyring   .builtin_trusted_keys: 2
2c9f0b12 I------     1 perm 1f030000     0     0 asymmetri GPU fleet: X509: modules: 0a1b2c: X509.rsa 000a1b2c []
"""


@pytest.mark.parametrize(
    ("key_id", "keys", "severity"),
    [
        (DEBIAN_CA, KEYS, "ok"),
        ("0a1b2c", KEYS, "ok"),
        ("bb419ea1", KEYS, "problem"),  # a part of an id is another id
        ("ffff", KEYS, "problem"),
        ("ffff", "", "warning"),  # the keyrings are not visible
        ("", KEYS, "warning"),
    ],
)
def test_the_certificate_of_the_image_is_looked_up_in_the_keyrings_of_the_kernel(world, key_id, keys, severity):
    world.write(ENFORCE, "Y\n")
    (world.proc / "keys").write_text(keys)
    assert world.found(signed=True, signer_key_id=key_id) == [("ModuleSignature", severity, "module signatures")]


def test_a_driver_that_another_program_loaded(world):
    world.load_module("nvidia", holders=("nvidia_uvm",), version="535.183.01")
    world.load_module("nvidia_uvm")
    assert world.found() == [("ForeignDriver", "problem", "driver nvidia")]
    assert world.found(adopted=True) == [("ForeignDriver", "ok", "driver nvidia")]
    assert world.found(swaps_driver=False) == []


def test_modules_of_other_projects_that_use_the_driver(world):
    world.load_own_driver()
    world.load_module("nvidia", holders=("nvidia_uvm", "gdrdrv", "nvidia_fs"), version="535.261.03")
    world.load_module("gdrdrv")
    world.load_module("nvidia_fs")
    assert world.found() == [
        ("CompanionModules", "problem", "module gdrdrv"),
        ("CompanionModules", "problem", "module nvidia_fs"),
    ]
    assert {severity for _, severity, _ in world.found(reboots=True)} == {"warning"}


def test_mig_devices(world):
    for gi in ("gi1", "gi2"):
        world.write_proc(f"driver/nvidia/capabilities/gpu0/mig/{gi}/access", "DeviceFileMinor: 3\n")
    assert world.found() == [("MigDevices", "problem", "MIG")]
    assert world.survey().facts["MIG devices"] == "gpu0/gi1, gpu0/gi2"
    assert world.found(swaps_driver=False) == []


def test_a_machine_with_nvswitches(world):
    world.add_device("0000:05:00.0", "0x068000", SWITCH_ALIAS)
    assert world.found(services=()) == [("FabricManager", "problem", "NVSwitch")]
    assert world.found(services=("persistenced",)) == [("FabricManager", "problem", "NVSwitch")]
    assert world.found(services=("fabricmanager", "persistenced")) == [("FabricManager", "ok", "NVSwitch")]
    assert world.found(services=None) == [("FabricManager", "warning", "NVSwitch")]
    assert world.found(services=(), swaps_driver=False) == []


def test_switches_without_a_gpu(world):
    """The virtual nodes of the tests: a bridge of NVIDIA, which the driver probes as an NVSwitch."""
    world.add_device("0000:1b:00.0", "0x068000", SWITCH_ALIAS)
    assert world.found(services=()) == [("FabricManager", "warning", "NVSwitch")]


def test_gpudirect_by_peermem(world):
    world.write("sys/class/infiniband/mlx5_0/node_guid", "0\n")
    world.load_own_driver()
    world.load_module("nvidia_peermem")
    assert world.found() == [("GpuDirectRdma", "warning", "nvidia_peermem")]


def test_cdi_specifications_of_another_driver(world):
    mounts = [{"hostPath": path, "containerPath": path} for path in ("/usr/lib/libcuda.so.535.183.01", "/usr/bin/x")]
    specification = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "containerEdits": {"mounts": mounts}}
    world.write("etc/cdi/nvidia.yaml", msgspec.json.encode(specification).decode())
    assert world.found() == [("CdiFiles", "warning", "/etc/cdi/nvidia.yaml")]
    assert world.found(managed_runtime=True) == []


def test_another_vendor_has_no_findings_on_nvidias_driver(world):
    world.load_module("nvidia", version="535.183.01")
    world.write(HOST_LIBRARY, "")
    world.write("etc/modprobe.d/nouveau.conf", "")
    world.add_device("0000:05:00.0", "0x068000", SWITCH_ALIAS)
    assert world.found(vendor="sim") == []


def test_problems_are_first(world):
    world.write(FIRMWARE, "/gone\n")
    world.write(HOST_LIBRARY, "")
    world.write("sys/module/nouveau/refcnt", "1\n")
    assert [severity for _, severity, _ in world.found()] == ["problem", "warning", "ok"]


@given(name=st.sampled_from(sorted(CHECKS)), text=st.text(max_size=60))
def test_no_content_of_a_file_breaks_a_survey(tmp_path_factory, name, text):
    """Hostile input: each file is overwritten with any text, and the survey still ends with findings only."""
    world = SurveyWorld(tmp_path_factory.mktemp("node"))
    world.load_own_driver()
    world.write(TOOLKIT, "")
    world.write("etc/cdi/a.yaml", "")
    files = sorted(path for path in world.root.rglob("*") if path.is_file())
    victim = files[sorted(CHECKS).index(name) % len(files)]
    victim.write_bytes(text.encode("utf-8", "surrogatepass"))
    for advice in world.survey(restarts_kubelet=True, kubelet=world.fetch_kubelet()).findings:
        assert advice.severity in set(Severity)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("10s", 10), ("1min 30s", 90), ("infinity", float("inf")), ("0", 0), ("", 0)],
)
def test_time_spans_of_systemd(text, seconds):
    assert parse_span(text) == pytest.approx(seconds)
