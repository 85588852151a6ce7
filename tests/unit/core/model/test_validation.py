"""Levels of the validation, and what they require of a stack."""

from tests.support.facts import target
from upgrader.core.model.revisions import revision_of
from upgrader.core.model.validation import AllReduce, Diagnostics, ValidationLevel, find_missing_programs

L = ValidationLevel
ALL_REDUCE, DIAGNOSTICS = AllReduce(image="registry.example/nccl-tests:1"), Diagnostics(image="registry.example/dcgm:4")


def test_a_level_includes_those_before_it():
    assert [[level.includes(other) for other in L] for level in L] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_what_a_stack_lacks_for_the_levels_of_a_plan():
    def missing(**programs):
        levels = {"spec.strategy.validation": L.ALL_REDUCE, "spec.strategy.canary.validation": L.DIAGNOSTICS}
        return find_missing_programs(target(**programs), levels)

    reduce, diagnose = "spec.validation.allReduce of stack pool-a", "spec.validation.diagnostics of stack pool-a"
    assert missing() == (
        f"spec.strategy.validation AllReduce requires {reduce}",
        f"spec.strategy.canary.validation Diagnostics requires {reduce}",
        f"spec.strategy.canary.validation Diagnostics requires {diagnose}",
    )
    assert missing(all_reduce=ALL_REDUCE) == (f"spec.strategy.canary.validation Diagnostics requires {diagnose}",)
    assert missing(all_reduce=ALL_REDUCE, diagnostics=DIAGNOSTICS) == ()
    assert find_missing_programs(target(), {"spec.strategy.validation": L.DEVICES}) == ()


def test_programs_are_facts_of_a_revision_and_their_digests_are_not():
    plain = target()
    programs = [
        target(all_reduce=ALL_REDUCE),
        target(all_reduce=AllReduce(image=ALL_REDUCE.image, tolerance_percent=10)),
        target(all_reduce=AllReduce(image=ALL_REDUCE.image, min_bus_bandwidth=400.0)),
        target(diagnostics=DIAGNOSTICS),
    ]
    assert len({revision_of(each) for each in (plain, *programs)}) == 5
    pinned = target(all_reduce=ALL_REDUCE, all_reduce_digest="x@sha256:0")
    assert revision_of(pinned) == revision_of(programs[0])
