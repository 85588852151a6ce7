"""What is less on a node than before: only losses count, and each is named with its values."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from upgrader.core.node_protocol.node_fingerprint import (
    SHOWN_LOSSES,
    NodeFingerprint,
    NodeLoss,
    Trait,
    describe_losses,
    find_losses,
)

NAMES = st.dictionaries(st.text(max_size=8), st.integers(0, 10**6), max_size=4)
VALUES = st.dictionaries(st.sampled_from(Trait), NAMES, max_size=len(Trait))
FINGERPRINTS = st.builds(NodeFingerprint, values=VALUES)


@examples(100)
@given(FINGERPRINTS)
def test_a_node_never_has_less_than_itself_also_after_the_file_on_its_disk(fingerprint):
    kept = msgspec.json.decode(msgspec.json.encode(fingerprint), type=NodeFingerprint)
    assert (kept, find_losses(kept, fingerprint)) == (fingerprint, ())


@examples(100)
@given(FINGERPRINTS, VALUES, st.integers(0, 100))
def test_more_is_no_loss(before, additions, more):
    values = {
        trait: additions.get(trait, {}) | {name: value + more for name, value in before.values.get(trait, {}).items()}
        for trait in Trait
    }
    assert find_losses(before, NodeFingerprint(values=values)) == ()


@examples(100)
@given(FINGERPRINTS, st.data())
def test_whatever_is_removed_or_reduced_is_named_and_nothing_else(before, data):
    values = {trait: dict(names) for trait, names in before.values.items()}
    expected = []
    for trait, names in before.values.items():
        for name, value in sorted(names.items()):
            match data.draw(st.sampled_from(["kept", "removed", "reduced"])):
                case "removed":
                    del values[trait][name]
                    expected.append(NodeLoss(trait=trait, name=name, before=value))
                case "reduced" if value:
                    values[trait][name] = value - 1
                    expected.append(NodeLoss(trait=trait, name=name, before=value, after=value - 1))
    losses = find_losses(before, NodeFingerprint(values=values))
    assert losses == tuple(expected)
    sentence = describe_losses(losses)
    assert all(f"{loss.trait} {loss.name}: " in sentence for loss in losses[:SHOWN_LOSSES])


def test_a_trait_that_can_no_longer_be_read_is_a_loss_if_there_was_something_of_it():
    before = NodeFingerprint(values={Trait.LINK: {"ens1": 1}, Trait.MOUNT: {}}, unread={Trait.MODULE: "hung"})
    after = NodeFingerprint(values={}, unread=dict.fromkeys(Trait, "not read within 30 s"))
    assert find_losses(before, after) == (NodeLoss(trait=Trait.LINK, why="not read within 30 s"),)


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (NodeLoss(trait=Trait.MODULE, name="knem", before=1), "out-of-tree kernel module knem: loaded → missing"),
        (NodeLoss(trait=Trait.LINK, name="ens1", before=100_000), "network link ens1: 100 Gb/s → not up"),
        (NodeLoss(trait=Trait.LINK, name="ens1", before=2_500, after=0), "network link ens1: 2.5 Gb/s → unknown"),
        (
            NodeLoss(trait=Trait.INFINIBAND, name="mlx5_0/1", before=400_000, after=100_000),
            "InfiniBand port mlx5_0/1: 400 Gb/s → 100 Gb/s",
        ),
        (
            NodeLoss(trait=Trait.VIRTUAL_FUNCTIONS, name="0000:3b:00.0", before=8),
            "virtual functions of 0000:3b:00.0: 8 → 0",
        ),
        (NodeLoss(trait=Trait.MOUNT, name="/data (nfs4)", before=1), "mount /data (nfs4): mounted → missing"),
        (
            NodeLoss(trait=Trait.PCI_LANES, name="NVMe drive 0000:5c:00.0", before=4, after=2),
            "PCIe lanes of NVMe drive 0000:5c:00.0: 4 → 2",
        ),
        (
            NodeLoss(trait=Trait.PCI_SPEED, name="NVMe drive 0000:5c:00.0", before=16_000, after=2_500),
            "PCIe speed of NVMe drive 0000:5c:00.0: 16 GT/s → 2.5 GT/s",
        ),
        (NodeLoss(trait=Trait.MOUNT, why="it is gone"), "mount: cannot be read (it is gone)"),
        (
            NodeLoss(trait=Trait.MODULE, name="m" * 500, before=1),
            f"out-of-tree kernel module {'m' * 120}…: loaded → missing",
        ),
    ],
)
def test_the_sentence_of_a_loss(loss, text):
    assert str(loss) == text


def test_a_sentence_lists_some_losses_and_counts_the_others():
    losses = [NodeLoss(trait=Trait.MODULE, name=f"m{number}", before=1) for number in range(SHOWN_LOSSES + 5)]
    text = describe_losses(losses)
    assert text.endswith("out-of-tree kernel module m9: loaded → missing; and 5 more")
    assert text.count("loaded") == SHOWN_LOSSES
