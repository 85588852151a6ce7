"""Each lint in a job that has the fault, and in one that is as near to it as can be and has not."""

import msgspec
import pytest

from tests.support.facts import gang
from tests.support.repository import ROOT
from upgrader.core.doctor.advice import Severity, has_problem
from upgrader.core.doctor.lint_facts import (
    BudgetSettings,
    Check,
    FailureRule,
    GangLintFacts,
    JobSettings,
    MemberSettings,
    ProgramFacts,
)
from upgrader.core.doctor.lints import lint_job
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations

IGNORE = FailureRule(action="Ignore", conditions=("DisruptionTarget",))
FILE = CheckpointAnnotations(method="file", timeout="10m")
W, P = Severity.WARNING, Severity.PROBLEM


def member(*words, **changes):
    facts = {
        "pod": "train-0",
        "programs": (ProgramFacts(name="trainer", words=words or ("python", "train.py")),),
        "grace_seconds": 600,
        "restart_policy": "Never",
        "declared": FILE,
        "mounted": True,
        "ephemeral_paths": ("/run/checkpoint", "/tmp"),
        "volume_paths": ("/data",),
    }
    return MemberSettings(**facts | changes)


def job(*members, of=None, settings=None, budgets=()):
    """A Job that nothing is wrong with, unless a test says so."""
    return GangLintFacts(
        gang=of or gang("train", ["a"]),
        members=members or (member(),),
        job=settings or JobSettings(name="train", rules=(IGNORE,)),
        budgets=budgets,
    )


def undeclared(*words, **changes):
    return job(member(*words, declared=CheckpointAnnotations(), **changes), of=gang("train", ["a"], method=""))


def signalled(*words, **changes):
    return job(
        member(*words, declared=CheckpointAnnotations(method="signal"), **changes),
        of=gang("train", ["a"], method="signal"),
    )


def rule(action, operator, *codes):
    return job(
        settings=JobSettings(
            name="train", rules=(IGNORE, FailureRule(action=action, operator=operator, exit_codes=codes))
        )
    )


PROBLEM = "Its checkpoint-timeout 'soon' is not a duration such as 90s, 30m or 1h30m."
EMPTY_MOUNT = {"ephemeral_paths": ("/data",), "volume_paths": ()}
ENVIRONMENT = (ProgramFacts(name="trainer", words=("train",), environment={"CHECKPOINT_DIR": "/tmp/ckpt"}),)
SHUTDOWN = (ProgramFacts(name="t", words=("torchrun", "x.py"), environment={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600"}),)

FAULTS = {
    "nothing is declared": (undeclared(), Check.UNDECLARED, W),
    "an annotation that cannot be read": (
        job(
            member(declared=CheckpointAnnotations(method="exec", timeout="soon")),
            of=gang("t", ["a"], method="", undeclared_because=PROBLEM),
        ),
        Check.UNREADABLE,
        P,
    ),
    "an annotation that nobody reads": (
        job(member(strange_annotations=("gpu-upgrader.io/checkpoint-metod",))),
        Check.UNKNOWN_ANNOTATION,
        P,
    ),
    "file without its mounts": (
        job(member(mounted=False), of=gang("t", ["a"], method="", undeclared_because="It declares file, but ...")),
        Check.FILE_NOT_MOUNTED,
        P,
    ),
    "file without its mounts, and another way": (
        job(
            member(mounted=False, declared=CheckpointAnnotations(method="file, api")), of=gang("t", ["a"], method="api")
        ),
        Check.FILE_NOT_MOUNTED,
        W,
    ),
    "an option names a path on an emptyDir": (
        job(member("train", "--checkpoint-dir", "/tmp/x")),
        Check.EPHEMERAL_CHECKPOINT,
        P,
    ),
    "the same with an equals sign": (job(member("train", "--ckpt_path=/tmp/x")), Check.EPHEMERAL_CHECKPOINT, P),
    "the same in a shell": (
        job(member("sh", "-c", "cd /src && train --save-dir /tmp/x")),
        Check.EPHEMERAL_CHECKPOINT,
        P,
    ),
    "a variable names a path on an emptyDir": (job(member(programs=ENVIRONMENT)), Check.EPHEMERAL_CHECKPOINT, P),
    "no volume outlives the pod": (job(member(volume_paths=())), Check.EPHEMERAL_CHECKPOINT, W),
    "torchrun, undeclared": (undeclared("torchrun", "--nproc-per-node=8", "train.py"), Check.TORCHRUN, W),
    "torchrun by its path in a shell": (
        undeclared("bash", "-c", "exec /opt/conda/bin/torchrun x.py"),
        Check.TORCHRUN,
        W,
    ),
    "torchrun as a module": (undeclared("python", "-m", "torch.distributed.run", "x.py"), Check.TORCHRUN, W),
    "torchrun told to wait less than the grace": (
        undeclared("torchrun", "--shutdown-timeout", "60", "x"),
        Check.TORCHRUN,
        W,
    ),
    "torchrun asked by a signal": (signalled("torchrun", "--shutdown-timeout=600", "x.py"), Check.TORCHRUN, W),
    "a grace that is shorter than a checkpoint": (job(member(grace_seconds=30)), Check.GRACE, W),
    "the same where the signal is the asking": (
        job(member(grace_seconds=30, declared=CheckpointAnnotations(method="signal", timeout="10m"))),
        Check.GRACE,
        P,
    ),
    "a budget that never allows": (
        job(member(budgets=("pdb",)), budgets=(BudgetSettings(name="pdb", most=0),)),
        Check.PDB_NEVER_ALLOWS,
        P,
    ),
    "a budget that allows one of two members": (
        job(member(budgets=("pdb",)), member(pod="b", budgets=("pdb",)), budgets=(BudgetSettings(name="pdb", most=1),)),
        Check.PDB_NEVER_ALLOWS,
        P,
    ),
    "two budgets on one pod": (
        job(member(budgets=("p", "q")), budgets=(BudgetSettings(name="p", most=1), BudgetSettings(name="q"))),
        Check.TWO_PDBS,
        P,
    ),
    "no rule for disruptions": (job(settings=JobSettings(name="train")), Check.NO_FAILURE_POLICY, W),
    "no rule for disruptions, and no failure allowed": (
        job(settings=JobSettings(name="train", backoff_limit=0)),
        Check.NO_FAILURE_POLICY,
        P,
    ),
    "a rule that takes our stop for a fault": (rule("FailJob", "In", 1, 143), Check.STOP_FAILS_JOB, P),
    "a rule for all codes but one": (rule("FailIndex", "NotIn", 42), Check.STOP_FAILS_JOB, P),
    "processes that are restarted in place": (job(member(restart_policy="OnFailure")), Check.RESTART_POLICY, W),
    "a declared pod that nobody would make again": (
        job(of=gang("t", ["a"], owner=None, cannot_stop="Its pods have no controller that would create them again.")),
        Check.CANNOT_RESTART,
        W,
    ),
}

SILENT = {
    "a job that is well": job(),
    "undeclared pods that are evicted one by one": job(
        member(declared=CheckpointAnnotations()), of=gang("serve", ["a"], method="", replicated=True)
    ),
    "it says that it cannot checkpoint": job(
        member(declared=CheckpointAnnotations(method="none"), volume_paths=()), of=gang("t", ["a"], method="none")
    ),
    "api needs no mounts": job(
        member(mounted=False, declared=CheckpointAnnotations(method="api")), of=gang("t", ["a"], method="api")
    ),
    "a checkpoint path on a volume that stays": job(member("train", "--checkpoint-dir=/data/x")),
    "a volume inside an emptyDir": job(member("train", "--checkpoint-dir", "/tmp/keep/x", volume_paths=("/tmp/keep",))),
    "a script's path is no checkpoint path": job(member("python", "/tmp/checkpoint.py")),
    "an object store": job(member("train", "--out", "s3://bucket/x", volume_paths=())),
    "torchrun that is asked first": job(member("torchrun", "train.py")),
    "torchrun that waits as long as the grace": job(
        member("torchrun", "--shutdown-timeout", "600", "x.py", declared=CheckpointAnnotations(method="none")),
        of=gang("t", ["a"], method="none"),
    ),
    "torchrun told so by its environment": job(
        member(programs=SHUTDOWN, declared=CheckpointAnnotations(method="none")), of=gang("t", ["a"], method="none")
    ),
    "a program whose name ends like torchrun": job(
        member("mytorchrun", declared=CheckpointAnnotations(method="none")), of=gang("t", ["a"], method="none")
    ),
    "a grace that is just long enough": job(member(grace_seconds=600)),
    "a budget that lets the whole gang go": job(
        member(budgets=("pdb",)), budgets=(BudgetSettings(name="pdb", most=1),)
    ),
    "a budget that depends on more": job(member(budgets=("pdb",)), budgets=(BudgetSettings(name="pdb"),)),
    "a budget over replicas that go one by one": job(
        member(budgets=("pdb",), declared=CheckpointAnnotations()),
        member(pod="b", budgets=("pdb",), declared=CheckpointAnnotations()),
        of=gang("serve", ["a"], method="", replicated=True),
        budgets=(BudgetSettings(name="pdb", most=1),),
    ),
    "a rule that is about other codes": rule("FailJob", "In", 1, 2),
    "a rule that spares our stop": rule("FailJob", "NotIn", 0, 143),
    "a stop that counts as a failure only": rule("Count", "In", 143),
    "pods without a Job": GangLintFacts(gang=gang("t", ["a"]), members=(member(restart_policy="OnFailure"),)),
}


@pytest.mark.parametrize(("of", "check", "severity"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_found_and_says_what_to_do(of, check, severity):
    found = [one for one in lint_job(of) if one.check == check]
    assert [(one.subject, one.severity) for one in found] == [(of.gang.name, severity)]
    assert found[0].message.endswith(".")
    assert found[0].fix.endswith(".")


@pytest.mark.parametrize("of", SILENT.values(), ids=SILENT.keys())
def test_silence(of):
    assert lint_job(of) == ()


def test_every_lint_is_shown():
    assert {check for _, check, _ in FAULTS.values()} == set(Check)


def test_the_worst_comes_first_and_nothing_is_said_twice():
    bad = job(
        member(grace_seconds=30, volume_paths=(), budgets=("p", "q")),
        settings=JobSettings(name="train"),
        budgets=(BudgetSettings(name="p", most=0),),
    )
    assert [(one.severity, one.check) for one in lint_job(bad)] == [
        (P, Check.PDB_NEVER_ALLOWS),
        (P, Check.TWO_PDBS),
        (W, Check.EPHEMERAL_CHECKPOINT),
        (W, Check.GRACE),
        (W, Check.NO_FAILURE_POLICY),
    ]
    assert has_problem(lint_job(bad))
    assert not has_problem(lint_job(undeclared()))


def test_the_sentence_about_torchrun_has_its_numbers():
    (torchrun,) = (one for one in lint_job(undeclared("torchrun", "x.py")) if one.check == Check.TORCHRUN)
    assert torchrun.message == (
        "torchrun kills its workers 30 s after SIGTERM, whatever the grace of 600 s. "
        "A checkpoint that takes longer is lost."
    )


def test_a_command_that_no_shell_could_read_is_still_looked_at():
    assert Check.TORCHRUN in {one.check for one in lint_job(undeclared("sh", "-c", "torchrun 'x.py"))}


def test_a_job_whose_pods_are_gone_has_nothing_to_be_said_about():
    assert lint_job(msgspec.structs.replace(job(), members=())) == ()


def test_every_lint_is_documented():
    page = (ROOT / "docs/reference/cli.md").read_text()
    assert [check for check in Check if f"| `{check.value}` |" not in page] == []
