"""Facts on a job for the lints: values, as they are in the cluster."""

from enum import StrEnum

from msgspec import Struct

from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.model.fleet import Gang
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations

DEFAULT_GRACE = 30
"""Kubernetes' default of terminationGracePeriodSeconds, in seconds."""


class Check(StrEnum):
    """A lint, as one word."""

    UNDECLARED = "Undeclared"
    UNREADABLE = "UnreadableAnnotation"
    UNKNOWN_ANNOTATION = "UnknownAnnotation"
    FILE_NOT_MOUNTED = "FileNotMounted"
    EPHEMERAL_CHECKPOINT = "EphemeralCheckpoint"
    TORCHRUN = "TorchrunKillsWorkers"
    GRACE = "GraceTooShort"
    PDB_NEVER_ALLOWS = "PdbNeverAllows"
    TWO_PDBS = "TwoPdbs"
    NO_FAILURE_POLICY = "NoPodFailurePolicy"
    STOP_FAILS_JOB = "StopFailsJob"
    RESTART_POLICY = "RestartPolicy"
    CANNOT_RESTART = "CannotRestart"


class FailureRule(Struct, frozen=True, kw_only=True):
    """A rule of a Job's podFailurePolicy; either conditions or exit codes are given."""

    action: str  # FailJob, FailIndex, Ignore, Count
    conditions: tuple[str, ...] = ()  # types of pod conditions that it matches, with status True
    operator: str = ""  # In, NotIn
    exit_codes: tuple[int, ...] = ()


class JobSettings(Struct, frozen=True, kw_only=True):
    """How a batch/v1 Job handles the end of its pods."""

    name: str
    backoff_limit: int = 6
    rules: tuple[FailureRule, ...] = ()


class ProgramFacts(Struct, frozen=True, kw_only=True):
    """A container of a pod: its command and the environment in its manifest (literal values only)."""

    name: str
    words: tuple[str, ...] = ()  # command and args
    environment: dict[str, str] = {}


class MemberSettings(Struct, frozen=True, kw_only=True):
    """A pod of a job, as far as the lints read it. Paths are those of the container that answers requests."""

    pod: str
    programs: tuple[ProgramFacts, ...] = ()
    grace_seconds: int = DEFAULT_GRACE
    restart_policy: str = "Always"
    declared: CheckpointAnnotations = CheckpointAnnotations()  # the nearest of pod, owner and namespace
    mounted: bool = False  # the request and answer directories of method file
    ephemeral_paths: tuple[str, ...] = ()
    volume_paths: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()  # PodDisruptionBudgets that select it
    strange_annotations: tuple[str, ...] = ()  # unknown names with the operator's prefix, on the pod or its owner


class BudgetSettings(Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget. `most` is the most evictions that it can ever allow; None: it depends on other pods."""

    name: str
    most: int | None = None


class GangLintFacts(Struct, frozen=True, kw_only=True):
    """All facts on one gang; `members` are its pods that have not ended."""

    gang: Gang
    members: tuple[MemberSettings, ...]
    job: JobSettings | None = None
    budgets: tuple[BudgetSettings, ...] = ()  # budgets that select a member

    @property
    def declared(self) -> CheckpointAnnotations:
        """Declarations of the first member; the gang states whether others differ."""
        return self.members[0].declared if self.members else CheckpointAnnotations()

    @property
    def methods(self) -> tuple[str, ...]:
        """Checkpoint methods, in the declared order; a plan's or an owner's, if the pods declare none."""
        methods = self.declared.method or self.gang.method
        return tuple(part.strip() for part in methods.split(",") if part.strip())


def make_advice(facts: GangLintFacts, check: Check, severity: Severity, message: str, fix: str) -> Advice:
    """A finding on this job."""
    return Advice(subject=facts.gang.name, check=check.value, severity=severity, message=message, fix=fix)
