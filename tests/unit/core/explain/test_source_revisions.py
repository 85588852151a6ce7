"""Where nodes come from, and what changes on their way."""

from tests.support.facts import NEW, OLD, node, target
from upgrader.core.explain.source_revisions import Change, Origin, find_origins
from upgrader.core.model.validation import AllReduce, Diagnostics


def test_each_revision_says_what_changes_and_the_largest_comes_first():
    old, managed = target(OLD), target("565.1", kubelet_version="1.34.4")
    settings = (("cpuManagerPolicy", "static"),)
    wanted = target(NEW, kubelet_version="1.35.4", kubelet_settings=settings)
    nodes = [node("a", "565.1", revision=managed.revision), node("b"), node("c"), node("d", revision="")]
    assert find_origins(nodes, {old.revision: old, managed.revision: managed}, wanted) == (
        Origin(
            revision=old.revision,
            nodes=2,
            changes=(
                Change(what="driver", before="sim 560.1", after="sim 570.10"),
                Change(what="kubelet", before="not managed", after="1.35.4"),
                Change(
                    what="kubelet settings",
                    before="not managed",
                    after="cpuManagerPolicy static",
                ),
            ),
        ),
        Origin(revision="", nodes=1),
        Origin(
            revision=managed.revision,
            nodes=1,
            changes=(
                Change(what="driver", before="sim 565.1", after="sim 570.10"),
                Change(what="kubelet", before="1.34.4", after="1.35.4"),
                Change(
                    what="kubelet settings",
                    before="not managed",
                    after="cpuManagerPolicy static",
                ),
            ),
        ),
    )


def test_how_gpus_are_shared_is_said_in_words():
    ways = (
        target(),
        target(time_slices=4),
        target(mps_replicas=4),
        target(mps_replicas=4, mps_runtime="nvidia"),
    )
    changed = [
        find_origins([node("a", revision=one.revision)], {one.revision: one}, ways[0])[0].changes for one in ways
    ]
    assert [[(one.what, one.before, one.after) for one in found] for found in changed] == [
        [],
        [("sharing", "4 time slices", "none")],
        [("sharing", "4 replicas by MPS", "none")],
        [("sharing", "4 replicas by MPS in RuntimeClass nvidia", "none")],
    ]


def test_a_revision_that_is_not_kept_any_more_is_shown_without_changes():
    assert find_origins([node("a")], {}, target()) == (Origin(revision=target(OLD).revision, nodes=1),)


def test_no_nodes():
    assert find_origins([], {}, target()) == ()


def test_programs_of_the_validation_are_shown_as_commands():
    reduce = AllReduce(image="r/nccl:1", command=["run", "a b"], min_bus_bandwidth=400.0)
    before, after = target(all_reduce=reduce), target(diagnostics=Diagnostics(image="r/dcgm:4", command=["dcgmi"]))
    (origin,) = find_origins([node("a", revision=before.revision)], {before.revision: before}, after)
    assert origin.changes == (
        Change(
            what="all-reduce",
            before="r/nccl:1: run 'a b', tolerance 5 %, minimum 400 GB/s",
            after="no program",
        ),
        Change(what="diagnostics", before="no program", after="r/dcgm:4: dcgmi"),
    )
