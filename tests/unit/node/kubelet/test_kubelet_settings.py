"""Settings of the kubelet in an upgrade: a drop-in, proven by what the kubelet writes itself, put back byte by byte."""

import os

import msgspec
import pytest

from tests.support.node_world import BINARY, CONFIG_DIR, CPU_STATE, Behaviour, NodeWorld
from upgrader.core.doctor.node_survey import SurveyReport
from upgrader.core.node_protocol.orders import (
    KubeletSettings,
    KubeletTarget,
    NodeDriver,
    OrderResult,
    PrepareOrder,
    Reason,
    UpgradeOrder,
)
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet import kubelet_settings
from upgrader.node.upgrade.prepare import prepare_node
from upgrader.node.upgrade.upgrade import UpgradeRun

STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
DROP_IN = f"{CONFIG_DIR}/90-gpu-upgrader.conf"
MEMORY_STATE = "/var/lib/kubelet/memory_manager_state"
SHOWN = "cpuManagerPolicy static, reservedSystemCPUs 0"


def order(upgrade="a", values=STATIC, **more):
    settings = KubeletSettings(binary=BINARY, values=values)
    return UpgradeOrder(**{"upgrade": upgrade, "settings": settings, **more})


def back(upgrade="a", **more):
    return order(f"{upgrade}-revert", {}, undoes=upgrade, **more)


def run(world, an_order):
    return UpgradeRun(
        an_order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock
    ).run()


def read(world, path):
    file = world.host.path(path)
    return msgspec.json.decode(file.read_bytes()) if file.exists() else None


def policy(world):
    return read(world, CPU_STATE)["policyName"]


def files(world):
    return {path: read(world, path) for path in (DROP_IN, CPU_STATE, MEMORY_STATE)}


def long_ago(world):
    """The drop-in was written long before the kubelet started."""
    os.utime(world.host.path(DROP_IN), (0, 0))


def test_settings_are_a_drop_in_and_the_kubelet_is_started_anew_without_the_state_of_before(tmp_path):
    world = NodeWorld(tmp_path)
    world.host.path(MEMORY_STATE).write_text("{}")
    result = run(world, order())
    assert result == OrderResult(
        reason=Reason.DONE,
        message=f"the kubelet runs with {SHOWN} and the node is Ready",
        seconds=result.seconds,
        facts={"kubelet settings": SHOWN},
    )
    assert read(world, DROP_IN) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **STATIC,
    }
    assert (policy(world), read(world, MEMORY_STATE)) == ("static", None)
    assert world.kubelet.restarts == ["1.34.4", "1.34.4"]


def test_settings_and_another_kubelet_take_one_restart(tmp_path):
    world = NodeWorld(tmp_path)
    target = KubeletTarget(version="1.35.4", binary=BINARY)
    result = run(world, order(kubelet=target, unload=NodeDriver(vendor="sim", version="1.0.0")))
    said = f"sim 1.0.0 unloaded (simulated); kubelet 1.35.4 runs with {SHOWN} and the node is Ready"
    assert (result.reason, result.message) == (Reason.DONE, said)
    assert (world.kubelet.restarts, policy(world)) == (["1.34.4", "1.35.4"], "static")


def test_settings_that_the_kubelet_has_already_change_nothing(tmp_path):
    world = NodeWorld(tmp_path)
    run(world, order())
    long_ago(world)
    assert run(world, order("b")).reason is Reason.DONE
    assert world.kubelet.restarts == ["1.34.4", "1.34.4"]
    assert world.host.path(DROP_IN).stat().st_mtime == 0


def test_a_kubelet_that_may_not_have_read_them_is_started_anew(tmp_path):
    world = NodeWorld(tmp_path)
    run(world, order())
    assert run(world, order("b")).reason is Reason.DONE  # the file is newer than the kubelet
    assert len(world.kubelet.restarts) == 3


def test_going_back_puts_back_what_was_there_byte_by_byte(tmp_path):
    world = NodeWorld(tmp_path)
    world.host.path(DROP_IN).write_text('{"topologyManagerPolicy": "restricted"}\n')
    world.host.path(MEMORY_STATE).write_text('{"policyName": "None"}\n')
    before = {path: world.host.path(path).read_bytes() for path in (DROP_IN, CPU_STATE, MEMORY_STATE)}
    run(world, order())
    assert run(world, back()).reason is Reason.DONE
    assert {path: world.host.path(path).read_bytes() for path in before} == before
    assert len(world.kubelet.restarts) == 3


def test_going_back_before_anything_was_written_leaves_the_kubelet_alone(tmp_path):
    world = NodeWorld(tmp_path)
    before = files(world)
    assert run(world, back()).reason is Reason.DONE
    assert (files(world), world.kubelet.restarts) == (before, ["1.34.4"])


def test_settings_that_are_left_out_take_the_drop_in_away(tmp_path):
    world = NodeWorld(tmp_path)
    run(world, order())
    result = run(world, order("b", {}))
    assert result.message == "the kubelet runs with no settings of the operator and the node is Ready"
    assert (read(world, DROP_IN), policy(world)) == (None, "none")


def test_a_kubelet_that_does_not_start_with_them_has_those_of_before_again(tmp_path):
    world = NodeWorld(tmp_path, old=Behaviour(version="1.34.4", policies=("none",)))
    before = files(world)
    result = run(world, order())
    assert result.reason is Reason.KUBELET_RESTORED
    assert result.message == (
        "settings of the kubelet: no kubelet runs: the supervisor of the node does not start it, or it ends "
        "immediately (see its log). The previous settings were restored; the kubelet runs"
    )
    assert (files(world), world.runs()) == (before, ["1.34.4"])
    assert run(world, order()) == result


def test_a_kubelet_that_is_not_well_is_put_back_with_the_settings_of_before(tmp_path):
    world = NodeWorld(tmp_path, new=Behaviour(version="1.35.4", healthy=False))
    before = files(world)
    result = run(world, order(kubelet=KubeletTarget(version="1.35.4", binary=BINARY)))
    assert (result.reason, world.installed(), world.runs()) == (Reason.KUBELET_RESTORED, "1.34.4", ["1.34.4"])
    assert files(world) == before
    assert run(world, back(kubelet=KubeletTarget(version="1.34.4", binary=BINARY))).reason is Reason.DONE
    assert (files(world), world.runs()) == (before, ["1.34.4"])


def test_state_that_the_kubelet_of_before_writes_while_it_ends_keeps_no_other_from_starting(tmp_path):
    world = NodeWorld(tmp_path, old=Behaviour(version="1.34.4", saves=True))
    before = files(world)
    assert run(world, order()).reason is Reason.DONE
    assert policy(world) == "static"
    assert run(world, back()).reason is Reason.DONE
    assert files(world) == before


def test_a_policy_that_the_kubelet_does_not_go_by_is_not_believed(tmp_path):
    world = NodeWorld(tmp_path)
    world.host.path(f"{CONFIG_DIR}/99-other.conf").write_text('{"cpuManagerPolicy": "none"}')
    result = run(world, order())
    assert result.reason is Reason.KUBELET_RESTORED
    assert f"{CPU_STATE} has policy none instead of static" in result.message
    assert policy(world) == "none"


def test_without_a_kubelet_nothing_is_written(tmp_path):
    world = NodeWorld(tmp_path, old=Behaviour(version="1.34.4", starts=False))
    with pytest.raises(OrderFailedError, match=f"no kubelet runs from {BINARY}"):
        run(world, order())
    assert read(world, DROP_IN) is None


def test_a_kubelet_that_is_lost_says_what_was_put_back(tmp_path):
    world = NodeWorld(tmp_path)
    world.kubelet.supervised = False
    with pytest.raises(
        OrderFailedError, match="The previous settings were restored; the kubelet is not healthy either: no"
    ):
        run(world, order())
    world.kubelet.supervised = True
    assert run(world, order()).reason is Reason.KUBELET_RESTORED
    assert (read(world, DROP_IN), policy(world)) == (None, "none")


def prepared(world, values=STATIC):
    world.host.path("/manifest").write_text('{"vendor": "sim", "version": "1", "kernel": "6.1.0-47-amd64"}')
    an_order = PrepareOrder(
        kernel="6.1.0-47-amd64",
        driver=NodeDriver(vendor="sim", version="1"),
        manifest=str(world.host.path("/manifest")),
        settings=KubeletSettings(binary=BINARY, values=values),
        min_free_bytes=1,
    )
    online = world.host.path("/sys/devices/system/cpu/online")
    online.parent.mkdir(parents=True, exist_ok=True)
    online.write_text("0-3\n")
    kernel = world.host.path("/proc/sys/kernel/osrelease")
    kernel.parent.mkdir(parents=True, exist_ok=True)
    kernel.write_text("6.1.0-47-amd64\n")
    return prepare_node(an_order, host=world.host, kubelet=world.kubelet, survey=lambda _: SurveyReport())


def test_preparing_says_what_will_be_set_and_writes_nothing(tmp_path):
    world = NodeWorld(tmp_path)
    world.clock.wait(60)
    assert prepared(world).facts["kubelet settings"] == SHOWN
    assert read(world, DROP_IN) is None


def without_folder(world):
    world.host.path(CONFIG_DIR).rmdir()


def other_file(text, name="99-other.conf"):
    return lambda world: world.host.path(f"{CONFIG_DIR}/{name}").write_text(text)


REFUSED = {
    "no drop-ins": ({"arguments": ()}, None, STATIC, "the kubelet runs without --config-dir"),
    "no folder": ({}, without_folder, STATIC, f"{CONFIG_DIR}, the --config-dir of the kubelet, does not exist"),
    "a flag": (
        {"arguments": ("--config-dir", CONFIG_DIR, "--cpu-manager-policy=none")},
        None,
        STATIC,
        "the kubelet is started with --cpu-manager-policy, which has precedence",
    ),
    "a later file": (
        {},
        other_file("topologyManagerScope: pod\ncpuManagerPolicy: none\n"),
        STATIC,
        "99-other.conf is read after 90-gpu-upgrader.conf and sets cpuManagerPolicy",
    ),
    "a file that nobody reads": (
        {},
        other_file("a: ["),
        STATIC,
        "99-other.conf in the --config-dir of the kubelet cannot be decoded",
    ),
    "no such CPU": ({}, None, {"reservedSystemCPUs": "0,3-4"}, "reservedCpus 0,3-4 contains CPU 4"),
    "every CPU": ({}, None, {"reservedSystemCPUs": "0-3"}, "reservedCpus 0-3 leaves no CPU"),
}


@pytest.mark.parametrize(("behaviour", "act", "values", "said"), REFUSED.values(), ids=REFUSED)
def test_preparing_refuses_what_the_kubelet_would_not_go_by(tmp_path, behaviour, act, values, said):
    world = NodeWorld(tmp_path, old=Behaviour(version="1.34.4", **behaviour))
    world.clock.wait(60)
    if act is not None:
        act(world)
    with pytest.raises(OrderFailedError, match=said) as caught:
        prepared(world, values)
    assert caught.value.reason is Reason.MISSING


@pytest.mark.parametrize("name", ["10-other.conf", "README"])
def test_earlier_files_and_files_that_the_kubelet_does_not_read_are_ignored(tmp_path, name):
    world = NodeWorld(tmp_path)
    world.clock.wait(60)
    other_file("cpuManagerPolicy: none", name)(world)
    assert prepared(world).reason is Reason.DONE


def test_a_state_that_nobody_can_read_is_not_of_the_policy(tmp_path):
    world = NodeWorld(tmp_path)
    (kubelet,) = world.kubelet.running()
    found = kubelet_settings.read_files(world.host, kubelet)
    world.host.path(CPU_STATE).write_text("{")
    assert (
        kubelet_settings.policy_fault(world.host, found, "static")
        == f"{CPU_STATE} has policy (unreadable) instead of static"
    )
    world.host.path(CPU_STATE).unlink()
    assert (
        kubelet_settings.policy_fault(world.host, found, "static") == f"{CPU_STATE} has policy none instead of static"
    )
