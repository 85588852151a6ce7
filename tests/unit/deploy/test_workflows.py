"""Workflows only call what a person can call too, and every such line is one that the command line takes."""

import re
import shlex

import click
import pytest
import yaml

from tests.support.repository import ROOT
from upgrader.cli.main import program

NIGHTLY = ROOT / ".github/workflows/nightly-driver-images.yml"
KEYS = "/run/upgrader"
SET_UP = re.compile(rf"umask 077|mkdir -p {KEYS}|printf %s \"\$[A-Z_]+\" > {KEYS}/[a-z.]+")
UPGRADER = ".venv/bin/upgrader"


def lines(path):
    """Every line that a workflow runs, continued ones as one."""
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        for step in job["steps"]:
            yield from step.get("run", "").replace("\\\n", " ").splitlines()


def variables(path):
    """Names that a workflow gives its steps, each with where its value is from."""
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        for place in (job, *job["steps"]):
            yield from place.get("env", {}).items()


COMMANDS = [line for line in lines(NIGHTLY) if line.startswith(UPGRADER)]


def test_the_nightly_workflow_runs_upgrader_make_and_what_puts_keys_into_files():
    others = [line for line in lines(NIGHTLY) if not line.startswith((UPGRADER, "make "))]
    assert [line for line in others if not SET_UP.fullmatch(line)] == []
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = [word for line in lines(NIGHTLY) if line.startswith("make ") for word in line.split()[1:]]
    assert made
    assert set(made) <= targets


def test_the_whole_night_is_there():
    said = [re.sub(rf"^{UPGRADER}( --kubeconfig \S+)? ", "", line).split()[:2] for line in COMMANDS]
    assert said == [["images", "discover"], ["images", "matrix"], ["images", "build"], ["images", "gc"]]


def test_no_secret_stands_on_a_command_line_or_is_written_by_a_variable_that_nobody_sets():
    assert [line for line in lines(NIGHTLY) if "${{" in line] == []
    given = {name for name, _ in variables(NIGHTLY)}
    used = set(re.findall(r"\$([A-Z_]+)", "\n".join(lines(NIGHTLY))))
    assert used
    assert used <= given


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: " ".join(line.split()[1:4]))
def test_every_line_is_one_that_the_command_line_takes(line, tmp_path):
    for name in ("cosign.key", "cosign.pub", "kubeconfig"):
        (tmp_path / name).touch()
    given = line.replace("$REPOSITORY", "registry.example/drivers").replace(KEYS, str(tmp_path))
    assert "$" not in given
    command, words = program, shlex.split(given)[1:]
    context = None
    while isinstance(command, click.Group):
        context = command.make_context(command.name, words, parent=context)
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None, name
    command.make_context(command.name, words, parent=context)


def test_a_line_with_an_option_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(click.UsageError):
        test_every_line_is_one_that_the_command_line_takes(f"{UPGRADER} images gc --nothing", tmp_path)
