"""Rights, and what is said about those that are missing."""

from upgrader.core.doctor.advice import Severity
from upgrader.core.doctor.rights import CHANGES, Right, Scope, check_rights, forecast_rights


def right(verb="get", resource="pods", group="", scope=Scope.CLUSTER):
    return Right(scope=scope, verb=verb, group=group, resource=resource)


def test_how_a_right_is_asked_for_and_shown():
    execute = right("create", "pods/exec")
    assert execute.attributes == {"verb": "create", "group": "", "resource": "pods", "subresource": "exec"}
    assert str(execute) == "create pods/exec"
    assert str(right("list", "jobs", "batch")) == "list jobs.batch"


def test_looking_takes_what_reads_everywhere_and_nothing_of_jobs():
    rights = [right(), right("watch"), right("patch"), right("list", scope=Scope.OWN), right(scope=Scope.JOBS)]
    assert forecast_rights(rights) == (rights[0], rights[3])


def test_missing_rights_are_named_up_to_five():
    missing = [right(verb) for verb in ("get", "list", "watch", "create", "patch", "delete", "update")]
    said = check_rights("x", "c", 9, missing, fix="do", severity=Severity.PROBLEM)
    assert (said.severity, said.fix) == (Severity.PROBLEM, "do")
    assert said.message == (
        "7 of 9 rights are missing: get pods, list pods, watch pods, create pods, patch pods and 2 more."
    )
    assert check_rights("x", "c", 9, [], fix="do", severity=Severity.PROBLEM).severity is Severity.OK


def test_what_people_write():
    assert [str(one) for one in CHANGES] == [
        "create gpustacks.gpu-upgrader.io",
        "patch gpustacks.gpu-upgrader.io",
        "create upgradeplans.gpu-upgrader.io",
        "patch upgradeplans.gpu-upgrader.io",
    ]
