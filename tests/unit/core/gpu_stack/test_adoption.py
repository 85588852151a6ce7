"""The labels of another operator: whose a node is, what a take-over writes, what is released."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.gpu_stack.adoption import (
    LABELS_DEPLOY,
    LABELS_PAUSED,
    LONGEST_LABEL,
    PAUSED,
    consent_time,
    foreign_labels,
    handed_back,
    paused_value,
    resumed_labels,
    taken_over,
    unpaused_labels,
)

DRIVER, PLUGIN = LABELS_DEPLOY
DCGM, TOOLKIT, MIG = (f"nvidia.com/gpu.deploy.{name}" for name in ("dcgm", "container-toolkit", "mig-manager"))
VALUES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", fullmatch=True)


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


def test_other_operands_are_paused_as_nvidia_pauses_them():
    labels = {DRIVER: "false", DCGM: "true", TOOLKIT: "custom", MIG: "false"}
    assert unpaused_labels(labels) == (TOOLKIT, DCGM)
    over = taken_over(labels, json.dumps({DRIVER: "true"}))
    assert over is not None
    changes, kept = over
    assert changes == {DCGM: "paused-for-driver-upgrade", TOOLKIT: "custom_paused-for-driver-upgrade"}
    assert json.loads(kept) == {DRIVER: "true", DCGM: "true", TOOLKIT: "custom"}
    assert taken_over(labels | changes, kept) is None


def test_an_operand_that_another_program_paused_or_that_does_not_run_is_left_alone():
    assert taken_over({DCGM: PAUSED, TOOLKIT: f"custom_{PAUSED}", MIG: "", DRIVER: "false"}, None) is None


def test_a_paused_operand_runs_again_and_the_record_of_the_others_stays():
    kept = json.dumps({DRIVER: "true", DCGM: "true", TOOLKIT: "custom"})
    values, left = resumed_labels({DRIVER: "false", DCGM: PAUSED, TOOLKIT: f"custom_{PAUSED}"}, kept)
    assert (values, json.loads(left or "")) == ({DCGM: "true", TOOLKIT: "custom"}, {DRIVER: "true"})
    assert resumed_labels({DCGM: PAUSED}, json.dumps({DCGM: "true"})) == ({DCGM: "true"}, None)
    assert handed_back({DRIVER: "false", DCGM: PAUSED}, kept) == {DRIVER: "true", DCGM: "true"}


@pytest.mark.parametrize("now", ["true", "false", "custom", ""])
def test_a_label_that_was_changed_while_it_was_paused_keeps_its_value(now):
    assert resumed_labels({DCGM: now}, json.dumps({DCGM: "true"})) == ({}, None)
    assert handed_back({DCGM: now}, json.dumps({DCGM: "true"})) == {}


def test_a_label_that_was_changed_to_deploy_again_is_paused_with_its_new_value():
    over = taken_over({DCGM: "custom"}, json.dumps({DCGM: "true"}))
    assert over is not None
    assert (over[0], json.loads(over[1])) == ({DCGM: f"custom_{PAUSED}"}, {DCGM: "custom"})


@pytest.mark.parametrize("kept", [None, "{", "[]", '{"nvidia.com/gpu.deploy.driver":"true"}'])
def test_without_a_record_of_paused_operands_nothing_changes(kept):
    assert resumed_labels({DCGM: PAUSED}, kept) == ({}, kept)


@given(labels=st.dictionaries(st.sampled_from((*LABELS_DEPLOY, *LABELS_PAUSED)), VALUES))
def test_what_is_paused_and_resumed_is_as_before(labels):
    over = taken_over(labels, None)
    changes, kept = over if over is not None else ({}, None)
    paused = labels | changes
    assert all(len(value) <= LONGEST_LABEL for value in paused.values())
    assert (unpaused_labels(paused), foreign_labels(paused)) == ((), ())
    assert paused | handed_back(paused, kept) == labels
    values, left = resumed_labels(paused, kept)
    assert {key: value for key, value in (paused | values).items() if key in LABELS_PAUSED} == {
        key: value for key, value in labels.items() if key in LABELS_PAUSED
    }
    assert handed_back(paused | values, left).keys() == set(foreign_labels(labels))


def test_the_value_before_is_a_part_of_the_paused_one_where_it_has_room():
    assert [paused_value(value) for value in ("true", "pre-installed", "v" * 38)] == [
        PAUSED,
        f"pre-installed_{PAUSED}",
        PAUSED,
    ]


def test_the_time_of_a_consent():
    assert consent_time('{"by":"ada","at":"2026-11-21T09:00:00Z"}') == "2026-11-21T09:00:00Z"
    assert [consent_time(text) for text in (None, "", "{}", "yes")] == [""] * 4
