from datetime import timedelta

import pytest

from tests.support.facts import NEW, OLD, fresh_node, gang, image, member, node, snapshot, target
from tests.support.forecasts import NEXT_KERNEL, foresee_by
from upgrader.core.explain.gang_explanation import why_gang
from upgrader.core.explain.node_explanation import Explanation, why_node
from upgrader.core.forecast.forecast import forecast_rollout
from upgrader.core.model.strategy import StrategyFacts, Window
from upgrader_dev.simulated.cluster.ports import START

OLDER = "The node has driver sim 560.1, the stack requires sim 570.10."
WORLD = snapshot(
    [
        node("a"),
        node("b"),
        node("c"),
        node("d", NEW, kernel_label="other"),
        node("e", skip=True),
        fresh_node("f"),
        node("g"),
        node("v", claimed_by="uid-upgrade"),
        node("w"),
    ],
    [
        gang("train", ["a", "b"]),
        gang("quiet", ["e"], method=""),
        gang("side", ["d"]),
        gang("kept", ["e"]),
        gang("web", ["g"], replicated=True, method="", owner=None),
    ],
)
ALREADY = frozenset({"v", "w"})
MADE = forecast_rollout(WORLD, target(), StrategyFacts(max_unavailable="100%"), now=START, already=ALREADY)
SKIPPED = "Node e carries the label gpu-upgrader.io/skip=true; remove it to have the node upgraded."
QUIET = (
    "The plan waits until ml/Job/quiet ends. It declares no checkpoint method. See "
    "docs/guides/job-authors/checkpointing.md."
)

NODES = {
    "a": Explanation(
        subject="a",
        verdict="Node a is upgraded in batch 2 of 2, together with b.",
        because=(OLDER, "ml/Job/train gets a checkpoint request, is stopped and restarted for it."),
    ),
    "c": Explanation(
        subject="c",
        verdict="Node c is upgraded in batch 1 of 2.",
        because=(OLDER, "Nothing that uses GPUs runs there."),
    ),
    "d": Explanation(
        subject="d",
        verdict=f"Node d is on revision {target().revision} and needs no upgrade.",
        because=("The kernel label contains other, the kubelet reports 6.1.0-40-amd64, which is used.",),
    ),
    "e": Explanation(subject="e", verdict="Node e should be upgraded and is blocked.", because=(QUIET, SKIPPED, OLDER)),
    "f": Explanation(
        subject="f",
        verdict="Node f gets its driver without a plan: no work on it can be lost.",
        because=("The operator has not installed a driver on the node yet.",),
    ),
    "g": Explanation(
        subject="g",
        verdict="Node g is upgraded in batch 2 of 2.",
        because=(OLDER, "Pods of ml/Job/web on it are evicted; their owner creates them again on other nodes."),
    ),
    "v": Explanation(subject="v", verdict="Node v is being upgraded by this plan.", because=(OLDER,)),
    "w": Explanation(
        subject="w",
        verdict="Node w was upgraded by this plan and differs from the stack; see its NodeUpgrade.",
        because=(OLDER,),
    ),
    "z": None,
}


@pytest.mark.parametrize(("name", "expected"), NODES.items(), ids=NODES.keys())
def test_why_a_node(name, expected):
    assert why_node(name, WORLD, MADE, already=ALREADY) == expected


LATER = START + timedelta(hours=1)


def test_a_reboot_is_told_with_the_pods_that_it_ends():
    world = snapshot(
        [node("a"), node("b")],
        [gang("train", ["a"]), gang("web", ["a", "a", "z"], gpus=0, replicated=True, method="", owner=None)],
        images=(image(OLD), image(NEW, NEXT_KERNEL)),
    )
    made = foresee_by(world, wanted=target(kernel=NEXT_KERNEL))
    because = {name: why_node(name, world, made).because[-1] for name in ("a", "b")}
    assert because == {
        "a": "a is rebooted; 2 pods without GPUs end too.",
        "b": "b is rebooted; 0 pods without GPUs end too.",
    }


def test_a_reboot_that_may_be_needed_is_told_too():
    world = snapshot(
        [node("a")],
        [gang("web", ["a", "a", "z"], gpus=0, replicated=True, method="", owner=None)],
        images=(image(OLD), image(NEW)),
        reboots_after_failed_unload=True,
    )
    assert why_node("a", world, foresee_by(world)).because[-1] == (
        "a is rebooted if the driver cannot be unloaded; 2 pods without GPUs end too."
    )


def test_other_settings_of_the_kubelet_are_told_as_a_reboot_is():
    settings = (("cpuManagerPolicy", "static"),)
    world = snapshot(
        [node("a"), node("b")],
        [gang("train", ["a"]), gang("web", ["a", "a", "z"], gpus=0, replicated=True, method="", owner=None)],
        images=(image(OLD), image(NEW)),
    )
    made = foresee_by(world, wanted=target(kubelet_settings=settings))
    because = {name: why_node(name, world, made).because[-1] for name in ("a", "b")}
    assert because == {
        "a": "a is reconfigured with other kubelet settings; 2 pods without GPUs end too.",
        "b": "b is reconfigured with other kubelet settings; 0 pods without GPUs end too.",
    }


def test_nodes_whose_jobs_end():
    world = snapshot([node(name) for name in "ab"], [gang("soon", "ab", ends_at=LATER)])
    made = foresee_by(world, completion_until=START + timedelta(hours=2))
    ends = "ml/Job/soon ends by 2026-11-21T10:00:00Z (estimated)."
    assert why_node("a", world, made) == Explanation(
        subject="a",
        verdict="Node a is upgraded when its jobs have ended, as are b; no gang gets a request.",
        because=(ends, OLDER),
    )


WAITS = {
    "a window": (
        {"windows": (Window(start="10:00", end="12:00"),)},
        {},
        "It waits for a window, which opens 2026-11-21T10:00:00Z.",
    ),
    "a time slice": (
        {},
        {"min_runtime_seconds": 7200},
        "It waits for the end of the time slice that ml/Job/x declared.",
    ),
    "the soak": ({"not_before": LATER}, {}, "It waits until the soak of the canaries ends."),
}


@pytest.mark.parametrize(("strategy", "declared", "waits"), WAITS.values(), ids=WAITS.keys())
def test_what_is_waited_for(strategy, declared, waits):
    members = (member("x-0", "a", started_at=START - timedelta(hours=1)),)
    world = snapshot([node("a")], [gang("x", [], members=members, **declared)])
    made = foresee_by(world, **strategy)
    of_node, of_gang = why_node("a", world, made), why_gang("ml/Job/x", world, made)
    for found in (of_node, of_gang):
        assert found.because[:2] == (waits, "Batch 1 starts at 2026-11-21T10:00:00Z.")


def test_who_is_ended_without_a_checkpoint():
    world = snapshot([node("a")], [gang("mute", "a", method="")])
    found = why_gang("ml/Job/mute", world, foresee_by(world, expendable=("ml/Job/mute",)))
    assert found.verdict == "ml/Job/mute is ended in batch 1 without a checkpoint, as the approval allows."


def test_long_lists_are_cut():
    world = snapshot([node(name) for name in "abcdefgh"], [gang("wide", "abcdefgh")])
    made = forecast_rollout(world, target(), StrategyFacts(max_unavailable="100%"), now=START)
    found = why_node("a", world, made)
    assert found is not None
    assert found.verdict == "Node a is upgraded in batch 1 of 1, together with b, c, d, e, f and 2 more."
