"""Law 8, "doubt holds": whatever freezes, fails or is cut off, two processes never may act at the same time."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from upgrader.core.errors import ClusterError, LostLeadershipError, UnreachableError
from upgrader.kube.lease import Election
from upgrader.kube.transport import REQUEST_SECONDS
from upgrader_dev.simulated.apiserver.cluster import FakeCluster

CANDIDATES = 3

steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("attempt"), st.integers(0, CANDIDATES - 1)),
        st.tuples(st.just("refused"), st.integers(0, CANDIDATES - 1)),
        st.tuples(st.just("answer lost"), st.integers(0, CANDIDATES - 1)),
        st.tuples(st.just("release"), st.integers(0, CANDIDATES - 1)),
    ),
    max_size=60,
)


def may_act(election: Election) -> bool:
    try:
        election.check()
    except LostLeadershipError:
        return False
    return True


class World:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.elections = [
            Election(self.cluster, name="l", namespace="default", identity=f"p{number}", clock=self.seconds)
            for number in range(CANDIDATES)
        ]

    def seconds(self) -> float:
        return self.cluster.clock.now().timestamp()

    async def step(self, what: str, value: int) -> None:
        if what == "wait":
            self.cluster.clock.advance(value)
            return
        election = self.elections[value]
        if what in ("refused", "answer lost"):
            self.cluster.fail_at(1, UnreachableError("cut"), acted=what == "answer lost")
        try:
            await (election.release() if what == "release" else election.attempt())
        except ClusterError:
            pass
        finally:
            self.cluster._faults.clear()

    def judge(self) -> None:
        acting = [number for number, election in enumerate(self.elections) if may_act(election)]
        assert len(acting) <= 1


@given(steps)
def test_no_two_processes_may_act_at_once(moves):
    async def play() -> None:
        world = World()
        for what, value in moves:
            await world.step(what, value)
            world.judge()

    asyncio.run(play())


@examples(400)
@given(steps)
def test_a_write_has_ended_before_a_successor_may_act(moves):
    """REQUEST_SECONDS lie between a holder's last moment to act and its successor's first, unless it released it."""

    async def play() -> None:
        world = World()
        last: dict[int, float] = {}
        for what, value in moves:
            if what == "release":
                continue
            # Look every second, as a writer could.
            pieces = [("wait", 1)] * value if what == "wait" else [(what, value)]
            for piece in pieces:
                await world.step(*piece)
                for number, election in enumerate(world.elections):
                    if may_act(election):
                        now = world.seconds()
                        others = [seen for other, seen in last.items() if other != number]
                        assert all(now - seen >= REQUEST_SECONDS - 1 for seen in others)
                        last[number] = now

    asyncio.run(play())
