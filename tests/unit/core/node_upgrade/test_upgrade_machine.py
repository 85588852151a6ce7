"""The next step of a node upgrade, sentence by sentence; every arrow of the state machine has one."""

import pytest

from tests.support.upgrade_cases import ALONE, view
from tests.support.upgrade_sentences_arrivals import ARRIVALS
from tests.support.upgrade_sentences_at_the_end import AT_THE_END
from tests.support.upgrade_sentences_before_off import BEFORE_OFF
from tests.support.upgrade_sentences_from_loading import FROM_LOADING
from tests.support.upgrade_sentences_from_off import FROM_OFF
from tests.support.upgrade_sentences_on_another_kernel import ON_ANOTHER_KERNEL
from upgrader.core.model.phases import TRANSITIONS, NodePhase, is_final
from upgrader.core.model.phases import NodePhase as Phase
from upgrader.core.node_upgrade import upgrade_machine
from upgrader.core.node_upgrade.upgrade_state import Decision, GroupView
from upgrader_dev.simulated.cluster.ports import START

CASES = BEFORE_OFF | FROM_OFF | FROM_LOADING | AT_THE_END | ON_ANOTHER_KERNEL | ARRIVALS


def decided(seen, group):
    siblings, requests, gangs, undo = group
    whole = GroupView(nodes=(seen, *siblings), requests=requests, gangs=gangs, undo=undo)
    return upgrade_machine.decide(seen, whole, START)


@pytest.mark.parametrize(("seen", "group", "expected"), CASES.values(), ids=CASES)
def test_the_next_step_of_a_node_upgrade(seen, group, expected):
    assert decided(seen, group) == expected


def test_every_arrow_has_its_sentence():
    arrows = {(row.phase, to) for row in TRANSITIONS if row.machine == "NodeUpgrade" for to in row.to}
    moved = [(seen, expected) for seen, _, expected in CASES.values()]
    taken = {
        (seen.phase, expected.phase)
        for seen, expected in moved
        if seen.phase is not expected.phase or seen.reverting != expected.reverting
    }
    assert taken == arrows


@pytest.mark.parametrize("phase", [phase for phase in NodePhase if is_final(phase)])
def test_an_ended_upgrade_is_left_alone_even_without_its_node(phase):
    assert decided(view(phase, failure="NotDrained"), ALONE) == Decision(phase=phase, failure="NotDrained")


def test_each_phase_that_is_not_final_has_a_step():
    assert set(upgrade_machine._STEPS) == {phase for phase in Phase if not is_final(phase)}
