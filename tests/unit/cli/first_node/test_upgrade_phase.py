"""Phase 12: a node upgrade by a plan, and the way back, with the real controller on a simulated fleet."""

import asyncio
import csv

import pytest

from tests.unit.cli.first_node.conftest import NODE, first_node, own_pods, read_journal
from tests.unit.cli.first_node.test_interrupted_runs import kill
from upgrader.api.explicit import explicit_json
from upgrader.api.resources import NODES, UPGRADE_PLANS
from upgrader.core.model.phases import is_final
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.cluster.rig import Rig

GO = ("--go", "12", "--set", "driver.version=2.0")


@pytest.fixture
def rig():
    """One node on driver 1.0, without jobs; the image for 2.0 is there."""
    made = Rig()

    async def build():
        made.fleet.add_node(NODE)
        made.put_image("1.0")
        made.put_image("2.0")
        made.apply_stack(made.make_spec("1.0"))
        await made.settle()
        made.make_spec("2.0")

    asyncio.run(build())
    return made


def node_state(rig):
    node = rig.cluster.store.read(NODES, NODE)
    labels = {key: value for key, value in node["metadata"]["labels"].items() if key.startswith("gpu-upgrader.io/")}
    return labels, node["spec"].get("unschedulable", False), node["spec"].get("taints", [])


def spec_now(rig):
    return explicit_json(rig.stack_now().spec)


def last_run(folder):
    return read_journal(folder).entries[-1]


def measured(folder):
    return {row["what"]: row for row in csv.DictReader((folder / "measured.csv").read_text().splitlines())}


def test_the_node_is_upgraded_and_led_back_with_each_step_measured(node, tmp_path):
    before = node_state(node), spec_now(node)
    ended = first_node(node, tmp_path, *GO)
    run = last_run(tmp_path)
    assert (run.verdict.value, run.message) == ("passed", "Succeeded; way back: Succeeded"), ended.output
    assert (node_state(node), spec_now(node)) == before
    assert [plan["status"]["phase"] for plan in node.cluster.store.copy_all(UPGRADE_PLANS)] == ["Completed"] * 2
    rows = measured(tmp_path)
    assert {what.partition(": ")[2] for what in rows if what.startswith("upgrade")} == {
        what.partition(": ")[2] for what in rows if what.startswith("way back")
    }
    assert (rows["upgrade: Loading"]["limit"], rows["way back: Unloading"]["limit"]) == ("900", "300")
    assert (ended.exit_code, run.left, own_pods(node)) == (0, (), [])


def test_an_upgrade_that_fails_is_a_failure_and_is_led_back(node, tmp_path):
    before = node_state(node), spec_now(node)

    def fail_validation(component, pod):
        forward = component == "validate" and pod["metadata"]["name"].startswith("validate-gpu-1")
        return OrderResult(reason=Reason.DEVICE_FAILED, message="GPU 3 fell off the bus") if forward else None

    node.fleet.pod_results = fail_validation
    ended = first_node(node, tmp_path, *GO)
    assert (ended.exit_code, last_run(tmp_path).verdict.value, last_run(tmp_path).left) == (1, "failed", ())
    assert (node_state(node), spec_now(node)) == before
    assert "paused after failures" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("at", [*range(20, 270, 25), *range(54, 62, 2)])
def test_a_run_that_is_killed_in_the_upgrade_is_led_back_by_the_next_run(node, tmp_path, at):
    before = node_state(node), spec_now(node)
    folder = tmp_path / "report"
    assert kill(node, folder, at, *GO)
    first_node(node, folder, "--go", "3")
    assert (node_state(node), spec_now(node)) == before
    assert read_journal(folder).left == ()
    assert all(is_final(plan.status.phase) for plan in node.list_objects(UPGRADE_PLANS, UPGRADE_PLANS.type))
    node.assert_nothing_left()


def test_a_stack_that_a_user_has_changed_since_is_left_as_it_is(node, tmp_path):
    folder = tmp_path / "report"
    assert kill(node, folder, 100, *GO)
    assert spec_now(node)["driver"]["version"] == "2.0"
    node.put_image("3.0")
    node.apply_stack(node.make_spec("3.0"))
    changed = spec_now(node)
    first_node(node, folder, "--go", "3")
    assert spec_now(node) == changed
    assert read_journal(folder).left == ()


def test_a_stack_of_other_nodes_is_refused_before_any_change(node, tmp_path):
    node.fleet.add_node("gpu-2")
    asyncio.run(node.settle(300))
    before = node_state(node), spec_now(node)
    ended = first_node(node, tmp_path, *GO)
    assert (ended.exit_code, last_run(tmp_path).verdict.value) == (1, "refused")
    assert "the stack selects 1 other node(s)" in ended.output
    assert (node_state(node), spec_now(node)) == before
    assert list(node.cluster.store.copy_all(UPGRADE_PLANS)) == []


def test_a_node_with_gpu_pods_is_refused(node, tmp_path):
    node.fleet.add_bare_pod("train", node=NODE, gpus=8)
    before = spec_now(node)
    ended = first_node(node, tmp_path, *GO)
    assert (ended.exit_code, last_run(tmp_path).verdict.value, spec_now(node)) == (1, "refused", before)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--go", "12"), "--go 12 and --set require each other"),
        (("--set", "driver.version=2.0"), "--go 12 and --set require each other"),
        (("--go", "12", "--set", "driver.version=1.0"), "--set does not change the stack"),
        (("--go", "12", "--set", "driver.version=9.0"), "the change does not upgrade the node"),
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(node, tmp_path, words, message):
    before = node_state(node), spec_now(node)
    ended = first_node(node, tmp_path, *words)
    assert (ended.exit_code != 0, message in ended.output) == (True, True), ended.output
    assert (node_state(node), spec_now(node)) == before
