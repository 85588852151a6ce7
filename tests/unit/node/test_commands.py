"""`python -m upgrader.node` as a program: orders in the environment, answers on standard output and as exit code."""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from upgrader.core.node_protocol.orders import NodeDriver, OrderResult, Reason, UpgradeOrder, ValidateOrder
from upgrader.node.host.task_result import EXIT_CODES
from upgrader.process import run


def command(name, order="", **env):
    text = order if isinstance(order, str) else msgspec.json.encode(order).decode()
    words = [sys.executable, "-m", "upgrader.node", *name.split()]
    return run(words, timeout=30, env={"UPGRADER_ORDER": text, **env}, check=False)


def answer(finished):
    result = msgspec.json.decode(finished.stdout, type=OrderResult)
    assert finished.code == EXIT_CODES[result.reason]
    return result


@pytest.mark.parametrize("name", ["prepare", "upgrade", "validate-driver", "validate"])
@pytest.mark.parametrize("order", ["", "{}", "no json", '{"upgrade": 3}'])
def test_an_order_that_cannot_be_read(name, order):
    result = answer(command(name, order))
    assert result.reason is Reason.BAD_ORDER
    assert f"UPGRADER_ORDER is not a valid order for {name}" in result.message


def test_a_pod_without_the_driver_fails_validation():
    order = ValidateOrder(driver=NodeDriver(vendor="sim", version="1.0.0"), boot_id="b", devices=1)
    result = answer(command("validate", order))
    assert (result.reason, result.message) == (
        Reason.DRIVER_MISMATCH,
        "no driver of sim is loaded, expected is sim 1.0.0",
    )


def test_a_kubelet_in_the_order_needs_the_nodes_name():
    order = {"upgrade": "a", "kubelet": {"version": "1.35.4", "binary": "/opt/kubelet"}}
    assert "UPGRADER_NODE is not set" in answer(command("upgrade", json.dumps(order), UPGRADER_NODE="")).message


def test_a_node_upgrade_without_a_name():
    assert answer(command("upgrade", UpgradeOrder(upgrade=""))).reason is Reason.BAD_ORDER


@pytest.mark.parametrize("words", ["", "unload", "--help"])
def test_what_is_no_command_says_which_there_are(words):
    finished = command(words)
    assert finished.code == EXIT_CODES[Reason.BAD_ORDER]
    commands = (
        "prepare|survey|record|upgrade|restore-power-limits|validate-driver|validate-programs|validate|node-labels"
    )
    assert f"{commands}|wait".encode() in finished.stderr


def test_arguments_are_no_orders():
    assert b"reads its order from UPGRADER_ORDER" in command("upgrade now").stderr


def test_what_has_no_order_does_not_load_what_decodes_them(tmp_path):
    here = tmp_path / "loaded.json"
    here.touch()
    words = ["wait", "--for", "driver", "--file", str(here)]
    tried = f"import sys; from upgrader.node.__main__ import main; print(main({words!r}), 'msgspec' in sys.modules)"
    assert run([sys.executable, "-c", tried], timeout=30).stdout == b"0 False\n"


def test_process_one_of_a_container_ends_when_it_is_told_to(tmp_path):
    words = [sys.executable, "-m", "upgrader.node", "wait", "--for", "driver", "--file", str(tmp_path / "never")]

    def tell(_line):
        for one in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(FileNotFoundError, ProcessLookupError):  # others end meanwhile
                if one.read_text().split("\0")[:-1] == words:
                    os.kill(int(one.parent.name), signal.SIGTERM)

    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", *words]
    ended = run(alone, timeout=30, check=False, on_line=tell)
    assert ended.code == 128 + signal.SIGTERM
    assert "waiting for operand driver on this node" in ended.stderr.decode()
