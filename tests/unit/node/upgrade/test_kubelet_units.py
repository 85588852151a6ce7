"""The swap of a kubelet that is a unit of systemd: units of each kind, a kubelet that dies at once."""

import msgspec
import pytest

from tests.support.node_world import BINARY, Behaviour, NodeWorld
from tests.support.played_systemd import BY_HAND, KUBEADM, LIMITED, ON_FAILURE
from upgrader.core.node_protocol.orders import KubeletTarget, OrderResult, Reason, UpgradeOrder
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.upgrade.upgrade import UpgradeRun

DEAD = Behaviour(version="1.35.4", starts=False)
ORDER = UpgradeOrder(upgrade="a", kubelet=KubeletTarget(version="1.35.4", binary=BINARY))
KINDS = pytest.mark.parametrize(
    "file", [KUBEADM, LIMITED, ON_FAILURE, BY_HAND], ids=["kubeadm", "start limit", "on-failure", "by hand"]
)


def run(world: NodeWorld, order: UpgradeOrder = ORDER) -> OrderResult:
    return UpgradeRun(order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock).run()


@KINDS
def test_systemd_restarts_the_kubelet_of_each_kind_of_unit(tmp_path, file):
    world = NodeWorld(tmp_path)
    unit = world.run_kubelet_as_unit(file)
    assert run(world).message == "kubelet 1.35.4 runs and the node is Ready"
    assert world.kubelet.restarts == ["1.34.4", "1.35.4"]
    assert unit.commands == ["show", "reset-failed", "restart"]


@KINDS
def test_the_previous_kubelet_comes_back_after_one_that_dies_at_once(tmp_path, file):
    world = NodeWorld(tmp_path, new=DEAD)
    unit = world.run_kubelet_as_unit(file)
    result = run(world)
    assert (result.reason, world.installed(), world.runs()) == (Reason.KUBELET_RESTORED, "1.34.4", ["1.34.4"])
    assert (world.kubelet.restarts[-1], unit.state) == ("1.34.4", "active")


def test_a_unit_that_systemd_has_given_up_is_started_again_every_ten_seconds(tmp_path):
    world = NodeWorld(tmp_path, new=DEAD)
    unit = world.run_kubelet_as_unit(BY_HAND)
    assert run(world).reason is Reason.KUBELET_RESTORED
    assert world.kubelet.restarts == ["1.34.4", *["1.35.4"] * 6, "1.34.4"]
    assert unit.commands.count("restart") == 7


def test_a_kubelet_that_ignores_sigterm_is_killed_and_the_restart_goes_on(tmp_path):
    world = NodeWorld(tmp_path, old=Behaviour(version="1.34.4", deaf=True))
    world.run_kubelet_as_unit(KUBEADM)
    assert (run(world).reason, world.runs()) == (Reason.DONE, ["1.35.4"])


@pytest.mark.parametrize("group", ["/user.slice/user-0.slice/session-3.scope", "/user.slice/user@0.service/k.service"])
def test_a_kubelet_that_is_no_unit_of_the_system_gets_sigterm(tmp_path, group):
    world = NodeWorld(tmp_path)
    unit = world.run_kubelet_as_unit(LIMITED, group=group)
    assert (run(world).reason, world.runs()) == (Reason.DONE, ["1.35.4"])
    assert "restart" not in unit.commands


def test_a_process_outside_the_control_group_of_this_container_is_found_in_its_unit(tmp_path):
    world = NodeWorld(tmp_path)
    unit = world.run_kubelet_as_unit(LIMITED, group="/../../system.slice/kubelet.service")
    assert (run(world).reason, unit.commands[-1]) == (Reason.DONE, "restart")


def test_a_systemctl_that_cannot_name_the_unit_leaves_the_kubelet_running(tmp_path):
    world = NodeWorld(tmp_path)
    world.run_kubelet_as_unit(LIMITED).failing = ["show"]
    with pytest.raises(OrderFailedError) as caught:
        run(world)
    assert (caught.value.reason, world.runs()) == (Reason.MISSING, ["1.34.4"])
    assert str(caught.value) == (
        "the unit of the kubelet is not known: systemctl show kubelet.service ended with exit code 1: Connection timed "
        "out"
    )


def test_a_systemctl_that_does_not_restart_the_unit_is_named_if_no_kubelet_comes(tmp_path):
    world = NodeWorld(tmp_path)
    unit = world.run_kubelet_as_unit(BY_HAND)
    unit.failing = ["restart"]
    with pytest.raises(OrderFailedError) as caught:
        run(world)
    assert caught.value.reason is Reason.KUBELET_LOST
    assert "systemctl restart kubelet.service ended with exit code 1: Connection timed out" in str(caught.value)
    unit.failing = []
    assert (run(world).reason, world.runs()) == (Reason.KUBELET_RESTORED, ["1.34.4"])


def test_a_revert_starts_a_lost_kubelet_by_the_unit_that_the_upgrade_recorded(tmp_path):
    world = NodeWorld(tmp_path, new=DEAD)
    unit = world.run_kubelet_as_unit(BY_HAND)
    unit.failing = ["restart"]
    with pytest.raises(OrderFailedError):
        run(world)
    unit.failing = []
    revert = msgspec.structs.replace(
        ORDER, upgrade="a-revert", undoes="a", kubelet=KubeletTarget(version="1.34.4", binary=BINARY)
    )
    assert (world.runs(), run(world, revert).reason, world.runs()) == ([], Reason.DONE, ["1.34.4"])
