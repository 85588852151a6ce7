"""The program as a whole: quick to start, distinct exit codes, errors in our words."""

import json
import re
import sys
from pathlib import Path

import pytest
from click import Context
from click.testing import CliRunner

import upgrader_dev
from tests.support.repository import ROOT
from tests.support.terminal import upgrader
from upgrader import __version__
from upgrader.cli.base import exit_codes
from upgrader.cli.base import program as program_module
from upgrader.cli.main import COMMANDS, program
from upgrader.core.errors import ConfigurationError, UpgraderError
from upgrader.core.node_protocol.node_features import label_value
from upgrader.process.run import run
from upgrader_dev.simulated.cluster.rig import Rig

HEAVY = {"kopf", "kubernetes", "rich", "aiohttp", "structlog", "yaml", "grpc", "asyncio"}


def subclasses(kind):
    return {kind}.union(*(subclasses(one) for one in kind.__subclasses__()))


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["nothing"]])
def test_a_list_of_the_commands_imports_none_of_them(words):
    code = f"""
import sys
from upgrader.cli.main import main
try:
    main()
except SystemExit as end:
    loaded = sorted({HEAVY!r} & set(sys.modules))
    sys.stderr.write(f"{{end.code}} {{loaded}}")
"""
    ended = run([sys.executable, "-c", code, *words], timeout=30)
    assert ended.stderr.decode().endswith(f"{exit_codes.USAGE if words == ['nothing'] else exit_codes.DONE} []")


def test_exit_codes_are_unique_and_all_documented():
    page = (ROOT / "docs/reference/cli.md").read_text()
    documented = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", page, re.MULTILINE))
    assert documented == {str(code): meaning for code, meaning in exit_codes.EXITS.items()}
    own = [kind.exit_code for kind in subclasses(UpgraderError) if "exit_code" in vars(kind)]
    special = [exit_codes.DONE, exit_codes.CHANGES, exit_codes.USAGE, exit_codes.INTERRUPTED]
    assert len(own + special) == len(set(own + special))
    assert set(own + special) == set(exit_codes.EXITS)


def test_every_command_is_documented():
    page = (ROOT / "docs/reference/cli.md").read_text()
    assert [name for name in program.list_commands(Context(program)) if f"`upgrader {name}" not in page] == []


def test_commands_are_listed_with_their_own_short_help():
    commands = {name: program.load(Context(program), name) for name in COMMANDS}
    assert {name: command.name for name, command in commands.items()} == {name: name for name in COMMANDS}
    listed = {name: short for name, (_, short) in COMMANDS.items()}
    assert listed == {name: command.get_short_help_str(200) for name, command in commands.items()}


def test_commands_of_another_distribution_are_found():
    assert {"dev", "demo"} <= set(program.list_commands(Context(program)))
    assert "dev" not in COMMANDS
    assert program.load(Context(program), "demo").name == "demo"
    assert program.get_command(Context(program), "demo").get_short_help_str() == "Command of gpu-upgrader-dev."


@pytest.mark.parametrize("words", [["--help"], ["demo", "--help"], ["nothing"]])
def test_installed_distributions_are_scanned_once_per_invocation(words, monkeypatch):
    scans = []
    scan = program_module.entry_points
    monkeypatch.setattr(program_module, "entry_points", lambda **group: scans.append(group) or scan(**group))
    CliRunner().invoke(program, words)
    assert scans == [{"group": "gpu_upgrader.commands"}]
    CliRunner().invoke(program, words)
    assert len(scans) == 2


def test_both_distributions_have_one_version():
    assert upgrader_dev.__version__ == __version__


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["plan", "--nothing"],
        ["apply"],
        ["apply", "/nowhere"],
        ["demo", "--boxes", "4", "--vm-nodes", "2"],
        ["dev", "image", "--output", "x", "--builder", "--node"],
    ],
)
def test_wrong_usage(words):
    assert upgrader(Rig(), *words).exit_code == exit_codes.USAGE


def test_an_error_says_what_is_wrong_and_what_to_do():
    ended = upgrader(Rig(), "status", "nothing")
    assert ended.exit_code == ConfigurationError.exit_code
    assert ended.stdout == ""
    assert ended.stderr == "error: plan nothing not found\n  `upgrader status` lists all plans.\n"


def test_the_program_is_installed():
    ended = run([sys.executable, "-m", "upgrader", "--version"], timeout=30)
    assert ended.text.startswith("upgrader, version 0.")


def test_no_colour_in_a_pipe_and_none_with_no_color():
    ended = upgrader(Rig(), "status")
    assert "\x1b" not in ended.stdout
    assert ended.stdout == "No GpuStack and no UpgradePlan found.\n"


FULL = "feature.node.kubernetes.io/kernel-version.full"


def test_the_labels_of_this_machine_are_shown_without_a_cluster():
    kernel = label_value(Path("/proc/sys/kernel/osrelease").read_text().strip())
    words = [sys.executable, "-m", "upgrader", "--kubeconfig", "/nowhere", "node-labels"]
    lines = run(words, timeout=30).stdout.decode().splitlines()
    assert f"{FULL}={kernel}" in lines
    shown = json.loads(run([*words, "--output", "json"], timeout=30).stdout)
    assert [f"{name}={value}" for name, value in shown.items()] == lines
