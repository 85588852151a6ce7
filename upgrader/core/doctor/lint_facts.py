"""A job as the lints look at it: values, as they stand in the cluster."""

from enum import StrEnum

from msgspec import Struct

from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.model.fleet import Gang
from upgrader.core.workloads.checkpoint_annotations import Declared

DEFAULT_GRACE = 30
"""Kubernetes' terminationGracePeriodSeconds where a pod says none, in seconds."""


class Check(StrEnum):
    """What is looked for, as one word."""

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
    conditions: tuple[str, ...] = ()  # types of pod conditions that it is about, with status True
    operator: str = ""  # In, NotIn
    exit_codes: tuple[int, ...] = ()


class JobSettings(Struct, frozen=True, kw_only=True):
    """How a batch/v1 Job takes the end of its pods."""

    name: str
    backoff_limit: int = 6
    rules: tuple[FailureRule, ...] = ()


class ProgramFacts(Struct, frozen=True, kw_only=True):
    """A container of a pod: what it runs and which environment its manifest gives it (values in clear only)."""

    name: str
    words: tuple[str, ...] = ()  # command and args
    environment: dict[str, str] = {}


class MemberSettings(Struct, frozen=True, kw_only=True):
    """A pod of a job, as far as the lints look at it. Paths are those of the container that answers."""

    pod: str
    programs: tuple[ProgramFacts, ...] = ()
    grace_seconds: int = DEFAULT_GRACE
    restart_policy: str = "Always"
    declared: Declared = Declared()  # the nearest of pod, owner and namespace
    mounted: bool = False  # the request and answer directories of method file
    ephemeral_paths: tuple[str, ...] = ()
    volume_paths: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()  # PodDisruptionBudgets that select it
    strange_annotations: tuple[str, ...] = ()  # with our prefix, on the pod or its owner, and no name of ours


class BudgetSettings(Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget. `most` is how many pods it can ever let go at once; None: it depends on more pods."""

    name: str
    most: int | None = None


class Linted(Struct, frozen=True, kw_only=True):
    """Everything that is looked at for one gang; `members` are its pods that have not ended."""

    gang: Gang
    members: tuple[MemberSettings, ...]
    job: JobSettings | None = None
    budgets: tuple[BudgetSettings, ...] = ()  # those that select a member

    @property
    def declared(self) -> Declared:
        """Of the first member; whether others declare otherwise the gang itself says."""
        return self.members[0].declared if self.members else Declared()

    @property
    def methods(self) -> tuple[str, ...]:
        """Checkpoint methods, in the declared order; a plan's or an owner's, where the pods themselves say none."""
        said = self.declared.method or self.gang.method
        return tuple(part.strip() for part in said.split(",") if part.strip())


def advice(facts: Linted, check: Check, severity: Severity, message: str, fix: str) -> Advice:
    """A finding about this job."""
    return Advice(subject=facts.gang.name, check=check.value, severity=severity, message=message, fix=fix)
