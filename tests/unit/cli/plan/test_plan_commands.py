"""plan, apply, drift, why on a pool with two jobs."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.support.golden import assert_golden
from tests.support.terminal import upgrader
from tests.unit.cli.conftest import NEXT, QUICK
from upgrader.api.resources import GPU_STACKS, JOBS, NAMESPACES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import UpgradePlan
from upgrader.core.errors import RegistryError
from upgrader.core.explain.plan_file import consented_loss, decode_forecast
from upgrader.reconcile.facts.strategies import strategy_of
from upgrader_dev.simulated.cluster.rig import STACK

GOLDEN = Path(__file__).parents[1] / "golden"


def plan_words(*more):
    return ("plan", *NEXT, *QUICK, "--max-unavailable", "50%", *more)


def only_plan(rig):
    (found,) = rig.cluster.store.copy_all(UPGRADE_PLANS)
    return found


class TestPlan:
    def test_nothing_is_touched(self, rig):
        before = len(rig.cluster.writes)
        assert upgrader(rig, *plan_words()).exit_code == 0
        assert rig.cluster.writes[before:] == []

    @pytest.mark.parametrize(("form", "suffix"), [("table", "txt"), ("json", "json"), ("yaml", "yaml")])
    def test_what_is_shown(self, rig, form, suffix):
        ended = upgrader(rig, *plan_words("--output", form))
        assert ended.exit_code == 0
        assert_golden(GOLDEN / f"plan.{suffix}", ended.stdout)

    def test_blockers_say_what_to_do(self, rig):
        ended = upgrader(rig, "plan", "--set", "driver.version=3.0")
        assert_golden(GOLDEN / "plan-blocked.txt", ended.stdout)

    def test_a_plan_that_is_under_way_is_spoken_of(self, rig, forecast_file):
        assert upgrader(rig, *plan_words()).stderr == ""
        assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
        asyncio.run(rig.run_until(lambda: only_plan(rig).get("status", {}).get("phase") == "Running"))
        ended = upgrader(rig, "plan", "--stack", STACK)
        name = only_plan(rig)["metadata"]["name"]
        assert ended.stderr.startswith(f"Plan {name} of stack {STACK} is Running: a new plan waits")

    def test_detailed_exit_code(self, rig):
        assert upgrader(rig, *plan_words("--detailed-exitcode")).exit_code == 2
        assert upgrader(rig, "plan", "--detailed-exitcode").exit_code == 0

    def test_from_a_manifest(self, rig, tmp_path):
        manifest = {
            "apiVersion": "gpu-upgrader.io/v1alpha1",
            "kind": "GpuStack",
            "metadata": {"name": STACK},
            "spec": rig.make_spec("2.0", plugin="2", kubelet="1.35.4"),
        }
        path = tmp_path / "stack.yaml"
        path.write_text(yaml.safe_dump(manifest))
        ended = upgrader(rig, "plan", "-f", str(path), *QUICK, "--max-unavailable", "50%", "--output", "json")
        shown = upgrader(rig, *plan_words("--output", "json"))
        assert json.loads(ended.stdout) == json.loads(shown.stdout)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("driver.verison=2.0", "unknown field spec.driver.verison"),
            ("driver.version=", "the spec of the stack is not valid"),
            ("driver=2.0", "the spec of the stack is not valid"),
            ("driver.version.major=2", "version has no fields"),
            ("nonsense", "must be PATH=VALUE"),
            ("kubelet.manage=perhaps", "the spec of the stack is not valid"),
            ("devicePlugin.image=registry/none:1", "registry/none:1 is not in its registry"),
        ],
    )
    def test_a_change_that_cannot_be(self, rig, change, said):
        ended = upgrader(rig, "plan", "--set", change)
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert said in ended.stderr

    @pytest.mark.parametrize("text", ["", "a: [", "kind: Job\nmetadata: {name: x}\n", "kind: GpuStack\n"])
    def test_a_manifest_that_is_none(self, rig, tmp_path, text):
        path = tmp_path / "stack.yaml"
        path.write_text(text)
        ended = upgrader(rig, "plan", "-f", str(path))
        assert ended.exit_code == 1
        assert "stack.yaml" in ended.stderr

    @pytest.mark.parametrize("budget", ["0", "0%", "101%", "many", "-1"])
    def test_a_budget_that_is_none(self, rig, budget):
        assert upgrader(rig, "plan", "--max-unavailable", budget).exit_code in {1, 64}

    def test_a_stack_must_be_named_where_there_are_several(self, rig):
        rig.cluster.store.put(GPU_STACKS, {"metadata": {"name": "other"}, "spec": rig.make_spec("1.0")})
        ended = upgrader(rig, "plan")
        assert ended.exit_code == 1
        assert "other, pool-a" in ended.stderr
        assert upgrader(rig, "plan", "--stack", STACK).exit_code == 0

    def test_a_registry_that_does_not_answer_is_no_missing_image(self, rig):
        rig.registry.reachable = False
        ended = upgrader(rig, *plan_words())
        assert ended.exit_code == RegistryError.exit_code
        assert "UPGRADER_INSECURE_REGISTRIES" in ended.stderr


class TestApply:
    def test_the_whole_rollout_is_followed(self, rig, forecast_file):
        ended = upgrader(rig, "apply", str(forecast_file), "--auto-approve", "--watch", "--approved-by", "sre@example")
        assert ended.exit_code == 0, ended.output
        plan = only_plan(rig)
        assert plan["status"]["phase"] == "Completed"
        assert plan["spec"]["approval"]["by"] == "sre@example"
        assert plan["spec"]["approval"]["limits"]["maxInterruptions"] == 2
        assert [rig.fleet.trainers[name].lost for name in ("gang", "solo")] == [0, 0]
        assert "gang default/Job/gang: Restored" in ended.stderr
        assert_golden(GOLDEN / "status.txt", upgrader(rig, "status").stdout)
        assert_golden(GOLDEN / "status-plan.txt", upgrader(rig, "status", plan["metadata"]["name"]).stdout)

    def test_the_plan_is_written_before_the_stack(self, rig, forecast_file):
        before = len(rig.cluster.writes)
        assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
        assert [(one.verb, one.kind) for one in rig.cluster.writes[before:]] == [
            ("create", "UpgradePlan"),
            ("edit", "GpuStack"),
        ]
        assert rig.stack_now().spec.driver.version == "2.0"

    def test_everything_that_was_asked_for_stands_in_the_plan(self, rig, tmp_path):
        kept = str(tmp_path / "paced.json")
        words = (
            "plan", *NEXT, "--max-unavailable", "16", "--topology-budget", "rack=16", "--min-available-gpus", "8",
            "--no-canary", "--wait-for-completion", "2h", "--deadline", "1d",
            "--window", "Mon-Fri 22:00-06:00 Europe/Berlin", "--lanes", "2",
            "--checkpoint-timeout", "10m", "--expendable", "solo", "--on-failure", "Rollback",
        )  # fmt: skip
        assert upgrader(rig, *words, "-o", kept).exit_code == 0
        assert upgrader(rig, "apply", kept, "--auto-approve", "--retry", "60").exit_code == 0
        agreed = decode_forecast(Path(kept).read_bytes(), kept)
        plan = msgspec.convert(only_plan(rig), UpgradePlan)
        assert strategy_of(plan, agreed.created_at) == agreed.strategy
        assert agreed.strategy.expendable == ("default/Job/solo",)
        assert plan.spec.checkpoint.retry_seconds == 60
        limits = plan.spec.approval.limits
        assert limits.max_lost_gpu_hours == consented_loss(agreed.limits.max_lost_gpu_hours)

    def test_applied_later_jobs_are_waited_for_as_long_and_the_deadline_stays(self, rig, tmp_path):
        kept = str(tmp_path / "later.json")
        words = ("--max-unavailable", "50%", "--wait-for-completion", "2h", "--deadline", "1d", "-o", kept)
        assert upgrader(rig, "plan", *NEXT, *words).exit_code == 0
        agreed = decode_forecast(Path(kept).read_bytes(), kept)
        rig.cluster.clock.advance(3600)
        assert upgrader(rig, "apply", kept, "--auto-approve").exit_code == 0
        strategy = only_plan(rig)["spec"]["strategy"]
        assert (strategy["waitForCompletionSeconds"], strategy["deadlineSeconds"]) == (7200, 23 * 3600)
        assert agreed.strategy.deadline == agreed.created_at + timedelta(days=1)

    def test_a_deadline_that_is_over_is_stale(self, rig, tmp_path):
        kept = str(tmp_path / "late.json")
        assert upgrader(rig, "plan", *NEXT, "--deadline", "1h", "-o", kept).exit_code == 0
        rig.cluster.clock.advance(3590)
        ended = upgrader(rig, "apply", kept, "--auto-approve")
        assert ended.exit_code == 3
        assert "deadline" in ended.stderr
        assert list(rig.cluster.store.copy_all(UPGRADE_PLANS)) == []

    def test_applied_twice_it_is_one_plan(self, rig, forecast_file):
        assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
        assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
        assert len(list(rig.cluster.store.copy_all(UPGRADE_PLANS))) == 1

    def test_killed_between_plan_and_stack_it_can_be_applied_again(self, rig, forecast_file):
        rig.cluster.fail_at(2, KeyboardInterrupt())
        assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 130
        assert rig.stack_now().spec.driver.version == "1.0"
        assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
        assert only_plan(rig)["spec"]["targetRevision"]
        assert rig.stack_now().spec.driver.version == "2.0"

    def test_somebody_has_to_agree(self, rig, forecast_file):
        ended = upgrader(rig, "apply", str(forecast_file))
        assert ended.exit_code == 64
        assert list(rig.cluster.store.copy_all(UPGRADE_PLANS)) == []

    def test_another_cluster(self, rig, forecast_file):
        rig.cluster.store.remove(NAMESPACES, "kube-system")
        rig.cluster.store.put(NAMESPACES, {"metadata": {"name": "kube-system"}})
        self.refused(rig, forecast_file, "OtherCluster")

    def test_the_stack_was_edited(self, rig, forecast_file):
        rig.apply_stack(rig.make_spec("1.0", plugin="2"))
        self.refused(rig, forecast_file, "StackChanged")

    def test_a_job_came_that_would_be_stopped(self, rig, forecast_file):
        rig.fleet.add_job("late", members=1, gpus=8)
        asyncio.run(rig.run_until(lambda: rig.fleet.trainers["late"].step > 2))
        self.refused(rig, forecast_file, "OtherGang")

    def test_a_job_that_ended_makes_nothing_stale(self, rig, forecast_file):
        rig.cluster.store.mark_deleted(JOBS, "solo", "default")
        assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0

    def test_no_forecast(self, rig, tmp_path):
        path = tmp_path / "x.json"
        path.write_text("{}")
        ended = upgrader(rig, "apply", str(path), "--auto-approve")
        assert ended.exit_code == 1
        assert "contains no saved forecast" in ended.stderr

    def test_a_new_stack_needs_no_plan(self, rig, tmp_path):
        rig.fleet.add_node("new-0", pool="b")
        spec = rig.make_spec("1.0") | {"nodeSelector": {"pool": "b"}}
        manifest = {
            "apiVersion": "gpu-upgrader.io/v1alpha1",
            "kind": "GpuStack",
            "metadata": {"name": "b"},
            "spec": spec,
        }
        (tmp_path / "b.yaml").write_text(yaml.safe_dump(manifest))
        kept = str(tmp_path / "b.json")
        assert upgrader(rig, "plan", "-f", str(tmp_path / "b.yaml"), "-o", kept).exit_code == 0
        ended = upgrader(rig, "apply", kept, "--auto-approve", "--watch")
        assert ended.exit_code == 0
        assert "no plan is required" in ended.stderr
        assert rig.cluster.store.find(GPU_STACKS, "b")["spec"]["driver"]["version"] == "1.0"
        assert list(rig.cluster.store.copy_all(UPGRADE_PLANS)) == []

    @staticmethod
    def refused(rig, path, reason):
        before = len(rig.cluster.writes)
        ended = upgrader(rig, "apply", str(path), "--auto-approve")
        assert ended.exit_code == 3, ended.output
        assert f"{reason}: " in ended.stderr
        assert rig.cluster.writes[before:] == []


class TestFollowing:
    def test_a_deadline(self, rig, forecast_file):
        words = ("apply", str(forecast_file), "--auto-approve", "--watch", "--timeout", "5")
        assert upgrader(rig, *words).exit_code == 5

    def test_everything_that_is_left_is_blocked(self, rig, forecast_file):
        veto = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        rig.cluster.store.change(JOBS, "solo", veto, "default")
        words = ("apply", str(forecast_file), "--auto-approve", "--watch", "--patience", "30")
        ended = upgrader(rig, *words)
        assert ended.exit_code == 4, ended.output
        assert "Vetoed" in ended.stderr
        assert only_plan(rig)["status"]["phase"] == "Running"

    def test_an_abort_ends_it(self, rig, forecast_file):
        assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
        name = only_plan(rig)["metadata"]["name"]
        assert upgrader(rig, "abort").exit_code == 0
        ended = upgrader(rig, "status", name, "--watch")
        assert ended.exit_code == 6
        assert f"plan {name} ended: Aborted" in ended.stderr

    def test_the_api_server_goes_away_and_comes_back(self, rig, forecast_file):
        assert upgrader(rig, "apply", str(forecast_file), "--auto-approve").exit_code == 0
        rig.cluster.clock.later(5, lambda: setattr(rig.cluster, "reachable", False))
        rig.cluster.clock.later(35, lambda: setattr(rig.cluster, "reachable", True))
        second = rig.run_second

        async def careful():
            if rig.cluster.reachable:
                await second()
            else:
                rig.cluster.clock.advance(1)

        rig.run_second = careful
        ended = upgrader(rig, "status", "--watch")
        assert ended.exit_code == 0, ended.output
        assert ended.stdout.count("the API server is not reachable") == 1


class TestDriftAndWhy:
    def test_drift(self, rig):
        rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))
        assert_golden(GOLDEN / "drift.txt", upgrader(rig, "drift").stdout)
        shown = json.loads(upgrader(rig, "drift", "--output", "json").stdout)
        assert {one["node"] for one in shown["drift"]} == {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}

    @pytest.mark.parametrize("subject", ["gpu-0", "gang", "default/solo", "default/Job/solo"])
    def test_why(self, rig, subject):
        rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))
        ended = upgrader(rig, "why", subject)
        assert ended.exit_code == 0
        assert_golden(GOLDEN / f"why-{subject.replace('/', '-')}.txt", ended.stdout)

    def test_why_of_nothing(self, rig):
        assert upgrader(rig, "why", "nobody").exit_code == 1
