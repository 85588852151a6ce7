"""The labels of another operator: whose a node is, what a take-over writes, what is released."""

import json

import pytest

from upgrader.core.gpu_stack.adoption import LABELS_DEPLOY, foreign_labels, handed_back, taken_over

DRIVER, PLUGIN = LABELS_DEPLOY


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({}, ()),
        ({DRIVER: "false", PLUGIN: ""}, ()),
        ({DRIVER: "true", PLUGIN: "false"}, (DRIVER,)),
        ({DRIVER: "pre-installed"}, (DRIVER,)),
        ({PLUGIN: "paused-for-driver-upgrade"}, (PLUGIN,)),
        ({"nvidia.com/gpu.deploy.dcgm-exporter": "true"}, ()),
    ],
)
def test_whose_a_node_is(labels, found):
    assert foreign_labels(labels) == found


def test_a_take_over_switches_off_what_is_on_and_keeps_what_it_was():
    assert taken_over({DRIVER: "true", PLUGIN: "false"}, None) == (
        {DRIVER: "false"},
        json.dumps({DRIVER: "true"}, separators=(",", ":")),
    )
    assert taken_over({DRIVER: "false"}, None) is None


def test_what_was_found_first_stands():
    over = taken_over({DRIVER: "paused-for-driver-upgrade", PLUGIN: "true"}, json.dumps({DRIVER: "true"}))
    assert over is not None
    labels, kept = over
    assert (labels, json.loads(kept)) == ({DRIVER: "false", PLUGIN: "false"}, {DRIVER: "true", PLUGIN: "true"})


def test_only_what_is_as_we_set_it_is_restored():
    kept = json.dumps({DRIVER: "true", PLUGIN: "true", "somebody/else": "x"})
    assert handed_back({DRIVER: "false", PLUGIN: "true"}, kept) == {DRIVER: "true"}
    assert handed_back({DRIVER: "false"}, None) == {}
    assert handed_back({DRIVER: "false"}, "{") == {}
