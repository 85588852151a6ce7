import msgspec
import pytest

from tests.support.node_world import BINARY, KERNEL, Behaviour, NodeWorld
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.node_survey import SurveyReport
from upgrader.core.node_protocol.orders import (
    KubeletTarget,
    NodeDriver,
    OrderResult,
    PrepareOrder,
    Reason,
    Reboot,
    SurveyScope,
)
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.upgrade.prepare import prepare_node

MANIFEST = {"vendor": "sim", "version": "2.0.0", "kernel": KERNEL, "simulated": True, "devices": 8}


class Prepared(NodeWorld):
    """A node with a kernel and the manifest that a driver image left in the pod."""

    def __init__(self, folder, **more):
        super().__init__(folder / "host", **more)
        self.manifest = folder / "manifest.json"
        self.scope, self.survey = None, lambda scope: SurveyReport()
        self.show({})

    def show(self, changes):
        self.manifest.write_bytes(msgspec.json.encode(MANIFEST | changes))

    def run(self, *, kernel=KERNEL, kubelet="1.35.4", free=0, binary=BINARY, reboot=None, parameters=None):
        order = PrepareOrder(
            kernel=kernel,
            driver=NodeDriver(vendor="sim", version="2.0.0"),
            manifest=str(self.manifest),
            kubelet=KubeletTarget(version=kubelet, binary=binary) if kubelet else None,
            reboot=reboot,
            parameters=parameters or {},
            survey=self.scope,
            min_free_bytes=free,
        )
        return prepare_node(order, host=self.host, kubelet=self.kubelet, survey=self.survey)

    def refused(self, **order):
        with pytest.raises(OrderFailedError) as caught:
            self.run(**order)
        return caught.value.reason, str(caught.value)


@pytest.fixture
def world(tmp_path):
    return Prepared(tmp_path)


def test_a_node_that_can_be_upgraded(world):
    before = world.files()
    assert world.run() == OrderResult(
        reason=Reason.DONE,
        message="the node can be upgraded",
        facts={
            "kernel": KERNEL,
            "driver": "sim 2.0.0",
            "simulated": "the driver image contains no kernel module",
            "kubelet": "1.35.4",
        },
    )
    assert (world.files(), world.kubelet.restarts, world.programs.calls) == (before, ["1.34.4"], 0)


def test_a_real_driver_is_not_called_simulated(world):
    world.show({"simulated": False})
    assert "simulated" not in world.run(kubelet=None).facts


def test_a_kubelet_that_is_not_managed_is_not_asked(world):
    world.kubelet.api_away = True
    assert world.run(kubelet=None).reason is Reason.DONE


def test_another_kernel_than_planned(world):
    assert world.refused(kernel="6.1.0-50-amd64") == (
        Reason.KERNEL_MISMATCH,
        f"the node runs kernel {KERNEL}, the upgrade was planned for 6.1.0-50-amd64",
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "1.0.0"}, Reason.DRIVER_MISMATCH),
        ({"vendor": "other"}, Reason.DRIVER_MISMATCH),
        ({"kernel": "6.1.0-50-amd64"}, Reason.KERNEL_MISMATCH),
        ({"kernel": 5}, Reason.DRIVER_MISMATCH),
    ],
)
def test_an_image_that_is_not_what_its_object_says(world, changes, reason):
    world.show(changes)
    assert world.refused()[0] is reason


def test_an_image_that_left_no_manifest(world):
    world.manifest.unlink()
    assert world.refused()[0] is Reason.MISSING


def test_a_kubelet_that_was_not_fetched(world):
    reason, message = world.refused(kubelet="1.36.0")
    assert reason is Reason.MISSING
    assert "/var/lib/gpu-upgrader/kubelet/1.36.0" in message


def test_a_kubelet_of_zero_length_after_a_power_cut(world):
    (world.host.state / "kubelet/1.35.4/kubelet").write_bytes(b"")
    assert world.refused()[0] is Reason.CHECKSUM_MISMATCH


def test_an_empty_checksum_file(world):
    (world.host.state / "kubelet/1.35.4/kubelet.sha256").write_text("")
    reason, message = world.refused()
    assert reason is Reason.CHECKSUM_MISMATCH
    assert "has nothing" in message


def test_a_kubelet_that_says_another_version(world):
    fetched = world.host.state / "kubelet"
    (fetched / "1.35.4").rename(fetched / "1.35.5")
    assert world.refused(kubelet="1.35.5") == (
        Reason.CHECKSUM_MISMATCH,
        "the kubelet of the artifact has version 1.35.4, expected is 1.35.5",
    )


def test_no_kubelet_from_that_file(world):
    world.kubelet.supervised = False
    world.kubelet.signal(world.kubelet.running()[0], 9)
    reason, message = world.refused()
    assert reason is Reason.MISSING
    assert "spec.kubelet.binary" in message


def test_a_kubelet_that_is_sick_before_the_upgrade(tmp_path):
    world = Prepared(tmp_path, old=Behaviour(version="1.34.4", healthy=False))
    assert "not healthy before the upgrade" in world.refused()[1]


def test_a_node_that_is_not_ready_before_the_upgrade(tmp_path):
    world = Prepared(tmp_path, old=Behaviour(version="1.34.4", ready=False))
    assert "not Ready before the upgrade" in world.refused()[1]


def test_credentials_that_do_not_show_the_node(world):
    world.kubelet.api_away = True
    assert "connection timed out" in world.refused()[1]


def test_a_full_disk(world):
    reason, message = world.refused(free=1 << 60)
    assert reason is Reason.DISK_FULL
    assert "/var/lib/gpu-upgrader has" in message


REBOOT = Reboot(kernel="6.1.0-50-amd64", select=("/sbin/choose", "--default"), restart=("/sbin/reboot",))


def test_a_reboot_after_a_failed_unload_needs_its_programs_and_the_kernel_that_runs(world):
    own = msgspec.structs.replace(REBOOT, kernel=KERNEL, only_after_failed_unload=True)
    assert world.refused(kubelet=None, reboot=own)[0] is Reason.MISSING
    world.install_kernel(REBOOT.kernel)
    assert world.run(kubelet=None, reboot=own).facts == world.run(kubelet=None).facts
    assert world.refused(kernel=REBOOT.kernel, kubelet=None, reboot=own)[0] is Reason.KERNEL_MISMATCH


def test_a_node_that_is_to_be_rebooted_into_a_kernel_that_is_installed(world):
    world.install_kernel(REBOOT.kernel)
    world.show({"kernel": REBOOT.kernel})
    result = world.run(kernel=REBOOT.kernel, kubelet=None, reboot=REBOOT)
    assert result.facts == {
        "kernel": KERNEL,
        "kernel after": REBOOT.kernel,
        "driver": "sim 2.0.0",
        "simulated": "the driver image contains no kernel module",
    }
    assert (world.machine.boots, world.machine.selected) == (1, KERNEL)


def test_a_kernel_that_could_not_be_booted_again(world):
    (world.host.path(f"/lib/modules/{KERNEL}") / "modules.dep").unlink()
    world.install_kernel(REBOOT.kernel)
    reason, said = world.refused(kernel=REBOOT.kernel, kubelet=None, reboot=REBOOT)
    assert (reason, f"kernel {KERNEL} is not installed on the node" in said) == (Reason.MISSING, True)


def test_an_image_for_the_kernel_that_runs_is_refused_where_another_is_to_be_booted(world):
    world.install_kernel(REBOOT.kernel)
    assert world.refused(kernel=REBOOT.kernel, kubelet=None, reboot=REBOOT) == (
        Reason.KERNEL_MISMATCH,
        f"the image is for kernel {KERNEL}, required is {REBOOT.kernel}; correct the DriverImage",
    )


def test_a_kernel_that_is_not_installed(world):
    assert world.refused(kernel=REBOOT.kernel, reboot=REBOOT) == (
        Reason.MISSING,
        (
            "kernel 6.1.0-50-amd64 is not installed on the node: there is no /lib/modules/6.1.0-50-amd64/modules.dep; "
            "install its package, or correct spec.reboot.kernel of the stack"
        ),
    )


@pytest.mark.parametrize("field", ["select", "restart"])
@pytest.mark.parametrize("there", [False, True], ids=["absent", "not executable"])
def test_a_program_that_cannot_be_run_on_the_node(world, field, there):
    world.install_kernel(REBOOT.kernel)
    if there:
        world.host.path("/sbin/other").touch(mode=0o644)
    wanted = msgspec.structs.replace(REBOOT, **{field: ("/sbin/other", "x")})
    assert world.refused(kernel=REBOOT.kernel, reboot=wanted) == (
        Reason.MISSING,
        f"/sbin/other is not a program on the node; correct spec.reboot.{field} of the stack",
    )


def test_problems_of_the_node_are_the_reason_of_a_refusal(world):
    problem = Advice(
        subject="dcgm.service", check="DriverInUse", severity=Severity.PROBLEM, message="holds it", fix="Stop"
    )
    warning = Advice(subject="cgroup v1", check="CgroupVersion", severity=Severity.WARNING, message="old", fix="")
    scopes = []

    def survey(scope):
        scopes.append(scope)
        return SurveyReport(findings=findings)

    world.survey, world.scope = survey, SurveyScope(vendor="sim")
    findings = (warning,)
    assert world.run().facts["warnings"] == "CgroupVersion (cgroup v1)"
    findings = (problem, warning)
    assert world.refused() == (Reason.UNSUITABLE, "DriverInUse: dcgm.service holds it. Stop")
    world.show({"checks": {"signature": True}, "signerKeyId": "0a1b2c"})
    assert world.refused()[0] is Reason.UNSUITABLE
    world.show({"services": [{"name": "fabricmanager", "version": "1"}]})
    assert world.refused()[0] is Reason.UNSUITABLE
    signed = SurveyScope(vendor="sim", signed=True, signer_key_id="0a1b2c", services=())
    unsigned = SurveyScope(vendor="sim", services=())
    serving = SurveyScope(vendor="sim", services=("fabricmanager",))
    assert scopes == [unsigned, unsigned, signed, serving]


def test_a_parameter_that_the_modules_of_the_image_do_not_have(world):
    world.show({"modules": [{"name": "nvidia", "parameters": ["NVreg_X"]}, {"name": "nvidia_uvm"}]})
    known = {"nvidia.NVreg_X": "1", "nvidia_uvm.y": "2"}
    assert world.run(parameters=known).facts["module parameters"] == "nvidia.NVreg_X=1, nvidia_uvm.y=2"
    assert world.refused(parameters={"nvidia.NVreg_Y": "1"})[0] is Reason.MISSING
    world.show({})
    assert world.refused(parameters=known)[0] is Reason.MISSING
