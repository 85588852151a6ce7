"""`upgrader checkpoint JOB` as a person types it."""

from tests.support.terminal import upgrader


def test_a_job_is_asked_and_goes_on(rig):
    ended = upgrader(rig, "checkpoint", "gang")
    assert ended.exit_code == 0, ended.output
    step = rig.requests()[0].status.acknowledged_step
    first, second, last = ended.stdout.splitlines()
    assert first.startswith("gang-0-")
    assert first.endswith(f"  step {step}  parked  /data/ckpt")
    assert second.startswith("gang-1-")
    assert last == f"gang default/Job/gang has a checkpoint of step {step} and continues"
    assert "Parked: 2 member(s) parked at step" in ended.stderr
    assert rig.fleet.trainers["gang"].stops == 0


def test_a_job_that_does_not_answer_is_an_error_of_its_own(rig):
    rig.fleet.trainers["solo"].answers = lambda *_: None
    ended = upgrader(rig, "checkpoint", "default/solo", "--timeout", "5")
    assert ended.exit_code == 4
    assert "error: gang default/Job/solo did not acknowledge" in ended.stderr
    assert "has not answered yet" in ended.stderr


def test_a_job_that_is_not_there_is_told_with_those_that_are(rig):
    ended = upgrader(rig, "checkpoint", "nobody")
    assert ended.exit_code == 1
    assert "job nobody not found on the nodes of stack pool-a" in ended.stderr
    assert "jobs: default/Job/gang, default/Job/solo" in ended.stderr
