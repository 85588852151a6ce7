"""`upgrader simulate`: the table, the JSON, and what is said about a file that is none."""

import msgspec

from tests.support.repository import ROOT
from tests.support.terminal import upgrader
from upgrader.cli.base import exit_codes
from upgrader.simulate.result import Result
from upgrader_dev.simulated.cluster.rig import Rig

FLEET = str(ROOT / "docs/examples/fleet.csv")
QUICK = ("--no-spread", "--max-unavailable", "34%", "--no-canary", "--wait-for-completion", "1h")


def test_the_example_says_on_the_screen_that_it_is_simulated():
    ended = upgrader(Rig(), "simulate", FLEET, *QUICK)
    assert ended.exit_code == exit_codes.DONE
    assert ended.stderr.startswith("Simulated: no cluster is read or changed.")
    lines = ended.stdout.splitlines()
    assert lines[0] == "Simulated: fleet fleet, 6 nodes, 48 GPUs, 5 jobs at the start, seed 0"
    assert [line.split("  ")[0] for line in lines if line.startswith(("upgrader", "node by node", "cordon"))] == [
        "upgrader",
        "node by node, kill",
        "cordon, then wait",
    ] * 2


def test_json_has_every_figure_of_every_strategy():
    ended = upgrader(Rig(), "simulate", FLEET, *QUICK, "--output", "json")
    said = msgspec.json.decode(ended.stdout)
    assert said["simulated"] is True
    found = {one.strategy: one for one in (msgspec.convert(each, Result) for each in said["results"])}
    assert list(found) == ["upgrader", "kill", "wait"]
    assert found["upgrader"].most_interruptions == 1
    assert found["upgrader"].thrown_away_gpu_hours == 0
    assert found["upgrader"].lost_gpu_hours < found["kill"].lost_gpu_hours


def test_one_strategy_can_be_chosen_and_a_seed_changes_the_durations():
    def took(seed: str) -> float:
        ended = upgrader(
            Rig(),
            "simulate",
            FLEET,
            "--strategy",
            "upgrader",
            "--seed",
            seed,
            "--max-unavailable",
            "34%",
            "--output",
            "json",
        )
        (only,) = msgspec.json.decode(ended.stdout)["results"]
        return float(only["lost_gpu_hours"])

    assert took("1") == took("1")
    assert took("1") != took("2")


def test_a_file_that_is_no_fleet_is_told_with_its_place(tmp_path):
    path = tmp_path / "fleet.json"
    path.write_text('{"nodes": [{"name": "a", "gpus": "many"}]}')
    ended = upgrader(Rig(), "simulate", str(path))
    assert ended.exit_code == 1
    assert ended.stderr == (
        "error: fleet file fleet.json, nodes[0]: Expected `int`, got `str` - at `$.gpus`\n"
        "  The format is in docs/reference/fleet-file.md.\n"
    )
