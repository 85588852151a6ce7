"""`python -m upgrader.node` as a program: orders in the environment, answers on standard output and as exit code."""

import json
import sys

import msgspec
import pytest

from upgrader.core.orders import Driver, OrderResult, Reason, ValidateOrder, VisitOrder
from upgrader.node.outcome import EXIT_CODES
from upgrader.process import run


def command(name, order="", **env):
    text = order if isinstance(order, str) else msgspec.json.encode(order).decode()
    words = [sys.executable, "-m", "upgrader.node", *name.split()]
    return run(words, timeout=30, env={"UPGRADER_ORDER": text, **env}, check=False)


def answer(finished):
    result = msgspec.json.decode(finished.stdout, type=OrderResult)
    assert finished.code == EXIT_CODES[result.reason]
    return result


@pytest.mark.parametrize("name", ["prepare", "visit", "validate"])
@pytest.mark.parametrize("order", ["", "{}", "no json", '{"visit": 3}'])
def test_an_order_that_cannot_be_read(name, order):
    result = answer(command(name, order))
    assert result.reason is Reason.BAD_ORDER
    assert f"UPGRADER_ORDER is no order to {name}" in result.message


def test_a_pod_without_the_driver_fails_validation():
    order = ValidateOrder(driver=Driver(vendor="sim", version="1.0.0"), boot_id="b", devices=1)
    result = answer(command("validate", order))
    assert (result.reason, result.message) == (
        Reason.DRIVER_MISMATCH,
        "no driver of sim is loaded, wanted is sim 1.0.0",
    )


def test_a_kubelet_in_the_order_needs_the_nodes_name():
    order = {"visit": "a", "kubelet": {"version": "1.35.4", "binary": "/opt/kubelet"}}
    assert "UPGRADER_NODE is not set" in answer(command("visit", json.dumps(order), UPGRADER_NODE="")).message


def test_a_visit_without_a_name():
    assert answer(command("visit", VisitOrder(visit=""))).reason is Reason.BAD_ORDER


@pytest.mark.parametrize("words", ["", "unload", "--help"])
def test_what_is_no_command_says_which_there_are(words):
    finished = command(words)
    assert finished.code == EXIT_CODES[Reason.BAD_ORDER]
    assert b"prepare|visit|validate|device-plugin" in finished.stderr


def test_arguments_are_no_orders():
    assert b"takes its order from UPGRADER_ORDER" in command("visit now").stderr
