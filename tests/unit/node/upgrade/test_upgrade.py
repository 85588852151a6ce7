import msgspec
import pytest

from tests.support.node_world import BINARY, Behaviour, NodeWorld
from upgrader.core.node_protocol.orders import KubeletTarget, NodeDriver, OrderResult, Reason, UpgradeOrder
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.upgrade.upgrade import UpgradeRun

NEW = KubeletTarget(version="1.35.4", binary=BINARY)
OLD = KubeletTarget(version="1.34.4", binary=BINARY)
DRIVER = NodeDriver(vendor="sim", version="1.0.0")


def order(upgrade="a", *, unload=DRIVER, kubelet=NEW):
    return UpgradeOrder(upgrade=upgrade, unload=unload, kubelet=kubelet)


def run(world, an_order):
    return UpgradeRun(
        an_order, host=world.host, kubelet=world.kubelet, programs=world.programs, clock=world.clock
    ).run()


def refused(world, an_order):
    with pytest.raises(OrderFailedError) as caught:
        run(world, an_order)
    return caught.value.reason, str(caught.value)


def test_a_node_upgrade_unloads_and_swaps_and_says_so(tmp_path):
    world = NodeWorld(tmp_path)
    result = run(world, order())
    assert result == OrderResult(
        reason=Reason.DONE,
        message="sim 1.0.0 unloaded (simulated); kubelet 1.35.4 runs and the node is Ready",
        seconds=result.seconds,
        facts={"driver": "sim 1.0.0 unloaded (simulated)", "kubelet": "1.35.4", "kubelet before": "1.34.4"},
    )
    assert (world.loaded(), world.installed(), world.runs()) == (False, "1.35.4", ["1.35.4"])
    assert world.kubelet.restarts == ["1.34.4", "1.35.4"]


def test_the_same_upgrade_again_returns_the_recorded_result_and_does_nothing(tmp_path):
    world = NodeWorld(tmp_path)
    first = run(world, order())
    before = world.files()
    assert run(world, order()) == first
    assert (world.files(), world.kubelet.restarts, world.programs.calls) == (before, ["1.34.4", "1.35.4"], 1)


def test_files_that_operands_left_which_are_off_are_taken_away_before_anything_else(tmp_path):
    """They would say to the next ones that those before them are done."""
    world = NodeWorld(tmp_path)
    left, others = world.host.run / "runtime.json", world.host.run / "another.json"
    for file in (left, others):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    forgets = msgspec.structs.replace(order(kubelet=None), forget=(world.host.on_node(left), "/run/not/there"))
    assert run(world, forgets).reason is Reason.DONE
    assert (left.exists(), others.exists()) == (False, True)


def test_the_old_binary_and_its_version_are_kept(tmp_path):
    world = NodeWorld(tmp_path)
    run(world, order())
    kept = world.host.state / "kubelet" / "previous"
    assert world.kubelet.read_version(kept / "kubelet") == "1.34.4"
    assert msgspec.json.decode((kept / "previous.json").read_bytes())["version"] == "1.34.4"


def test_an_order_without_kubelet_never_looks_at_it(tmp_path):
    world = NodeWorld(tmp_path)
    assert run(world, order(kubelet=None)).message == "sim 1.0.0 unloaded (simulated)"
    assert world.kubelet.restarts == ["1.34.4"]


def test_an_order_for_nothing_is_done(tmp_path):
    assert (
        run(NodeWorld(tmp_path), order(unload=None, kubelet=None)).message == "driver, kubelet and kernel stay the same"
    )


def test_a_busy_driver_stops_the_upgrade_before_the_kubelet_and_names_who_holds_it(tmp_path):
    world = NodeWorld(tmp_path)
    world.programs.holders = ["pid 4711 (python3)", "pid 12 (trainer)"]
    assert refused(world, order()) == (
        Reason.BUSY,
        "sim 1.0.0 is in use: pid 4711 (python3) pid 12 (trainer)",
    )
    assert (world.loaded(), world.installed()) == (True, "1.34.4")
    world.programs.holders = []
    assert run(world, order()).reason is Reason.DONE


def test_who_holds_the_driver_is_soon_named_and_then_waited_for_longer(tmp_path):
    world = NodeWorld(tmp_path)
    world.programs.holders = ["pid 4711 (python3)"]
    took = []
    for _ in range(3):
        began = world.clock.now
        refused(world, msgspec.structs.replace(order(), first_busy_timeout=10, busy_timeout=30))
        took.append((world.clock.now - began, world.programs.calls))
    assert took == [(10, 6), (30, 22), (30, 38)]


def test_a_holder_that_goes_meanwhile_is_no_failure(tmp_path):
    world = NodeWorld(tmp_path)
    world.programs.holders = ["pid 4711 (python3)"]
    world.programs.held_for = 3
    assert (run(world, order()).reason, world.programs.calls) == (Reason.DONE, 4)


@pytest.mark.parametrize(("code", "missing"), [(3, False), (0, True)])
def test_an_unload_that_fails_is_no_busy_driver(tmp_path, code, missing):
    world = NodeWorld(tmp_path)
    world.programs.code, world.programs.missing = code, missing
    assert refused(world, order())[0] is Reason.DEVICE_FAILED


def test_a_slow_removal_of_modules_is_waited_for_as_long_as_the_order_allows(tmp_path):
    """The kernel does not cancel it: a failure would be reported while it continues."""
    world = NodeWorld(tmp_path)
    world.programs.removal_seconds = 599
    assert run(world, order()).message.startswith("sim 1.0.0 unloaded")
    world.load_driver("1.0.0")
    reason, message = refused(world, msgspec.structs.replace(order("b"), unload_timeout=598))
    assert (reason, "limit: driverUnloadSeconds of the stack" in message) == (Reason.DEVICE_FAILED, True)


def test_a_driver_that_is_not_the_ordered_one_is_left_alone(tmp_path):
    world = NodeWorld(tmp_path)
    world.load_driver("2.0.0")
    assert run(world, order(kubelet=None)).message == "sim 1.0.0 was not loaded; 2.0.0 is"
    assert (world.loaded(), world.programs.calls) == (True, 0)


def test_a_kubelet_that_is_there_already_is_not_restarted(tmp_path):
    world = NodeWorld(tmp_path)
    run(world, order("a"))
    world.clock.wait(60)
    assert run(world, order("b", unload=None)).reason is Reason.DONE
    assert world.kubelet.restarts == ["1.34.4", "1.35.4"]


def test_a_revert_takes_the_kept_kubelet_and_keeps_the_one_it_replaces(tmp_path):
    world = NodeWorld(tmp_path)
    run(world, order("a"))
    assert run(world, order("a-revert", unload=None, kubelet=OLD)).reason is Reason.DONE
    assert (world.installed(), world.runs()) == ("1.34.4", ["1.34.4"])
    kept = msgspec.json.decode((world.host.state / "kubelet" / "previous" / "previous.json").read_bytes())
    assert (kept["version"], kept["upgrade"]) == ("1.35.4", "a-revert")
    assert run(world, order("b", unload=None)).reason is Reason.DONE
    assert world.installed() == "1.35.4"


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (Behaviour(version="1.35.4", starts=False), "no kubelet runs"),
        (Behaviour(version="1.35.4", healthy=False), "its /healthz returned 500"),
        (Behaviour(version="1.35.4", ready=False), "the node is not Ready"),
    ],
)
def test_a_kubelet_that_is_not_well_is_put_back(tmp_path, new, why):
    world = NodeWorld(tmp_path, new=new)
    result = run(world, order())
    assert result.reason is Reason.KUBELET_RESTORED
    assert why in result.message
    assert "Kubelet 1.34.4 was restored and runs" in result.message
    assert (world.installed(), world.runs()) == ("1.34.4", ["1.34.4"])
    assert run(world, order()) == result


def test_a_kubelet_that_says_another_version_to_the_api_is_put_back(tmp_path):
    world = NodeWorld(tmp_path, new=Behaviour(version="1.35.4"))
    world.write("/var/lib/gpu-upgrader/kubelet/1.35.4/kubelet", Behaviour(version="1.35.3"))
    world.fetch(Behaviour(version="1.35.3"))
    fetched = world.host.state / "kubelet" / "1.35.3" / "kubelet.sha256"
    fetched.replace(world.host.state / "kubelet" / "1.35.4" / "kubelet.sha256")
    assert "still has kubelet v1.35.3" in run(world, order()).message


def test_an_api_server_that_does_not_answer_ends_in_putting_back(tmp_path):
    world = NodeWorld(tmp_path)
    world.kubelet.api_away = True
    result = run(world, order())
    assert result.reason is Reason.KUBELET_RESTORED
    assert "connection timed out" in result.message


def test_a_kubelet_that_ignores_sigterm_is_killed(tmp_path):
    world = NodeWorld(tmp_path, old=Behaviour(version="1.34.4", deaf=True))
    assert run(world, order()).reason is Reason.DONE
    assert world.runs() == ["1.35.4"]


def test_a_supervisor_that_does_not_start_anything_is_a_lost_kubelet_that_another_run_can_mend(tmp_path):
    world = NodeWorld(tmp_path)
    world.kubelet.supervised = False
    reason, message = refused(world, order())
    assert reason is Reason.KUBELET_LOST
    assert "Kubelet 1.34.4 was restored and is not healthy either: no kubelet runs" in message
    world.kubelet.supervised = True
    assert run(world, order()).reason is Reason.KUBELET_RESTORED


def test_a_sick_kubelet_that_was_there_before_cannot_be_put_back(tmp_path):
    world = NodeWorld(tmp_path)
    run(world, order("a"))
    world.kubelet.api_away = True
    reason, message = refused(world, order("b"))
    assert reason is Reason.KUBELET_LOST
    assert "nothing is restored" in message


def test_a_fetched_kubelet_that_was_damaged_is_not_installed(tmp_path):
    world = NodeWorld(tmp_path)
    world.write("/var/lib/gpu-upgrader/kubelet/1.35.4/kubelet", Behaviour(version="6.6.6"))
    assert refused(world, order())[0] is Reason.CHECKSUM_MISMATCH
    assert world.installed() == "1.34.4"


def test_a_kubelet_that_nobody_fetched_is_missing(tmp_path):
    world = NodeWorld(tmp_path)
    assert refused(world, order(kubelet=KubeletTarget(version="1.36.0", binary=BINARY)))[0] is Reason.MISSING


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "a/b", "." * 3])
def test_a_node_upgrade_needs_a_name_that_is_a_file_name(tmp_path, name):
    assert refused(NodeWorld(tmp_path), order(name))[0] is Reason.BAD_ORDER
