import msgspec
import pytest

from tests.support.node_world import BINARY, Behaviour, NodeWorld
from upgrader.core.orders import Driver, KubeletTarget, OrderResult, PrepareOrder, Reason
from upgrader.node.outcome import OrderFailedError
from upgrader.node.prepare import prepare

KERNEL = "6.1.0-47-amd64"
MANIFEST = {"vendor": "sim", "version": "2.0.0", "kernel": KERNEL, "simulated": True, "devices": 8}


class Prepared(NodeWorld):
    """A node with a kernel and the manifest that a driver image left in the pod."""

    def __init__(self, folder, **more):
        super().__init__(folder / "host", **more)
        self.manifest = folder / "manifest.json"
        self.show({})
        osrelease = self.host.root / "proc/sys/kernel/osrelease"
        osrelease.parent.mkdir(parents=True)
        osrelease.write_text(KERNEL + "\n")

    def show(self, changes):
        self.manifest.write_bytes(msgspec.json.encode(MANIFEST | changes))

    def run(self, *, kernel=KERNEL, kubelet="1.35.4", free=0, binary=BINARY):
        order = PrepareOrder(
            kernel=kernel,
            driver=Driver(vendor="sim", version="2.0.0"),
            manifest=str(self.manifest),
            kubelet=KubeletTarget(version=kubelet, binary=binary) if kubelet else None,
            min_free_bytes=free,
        )
        return prepare(order, host=self.host, kubelet=self.kubelet)

    def refused(self, **order):
        with pytest.raises(OrderFailedError) as caught:
            self.run(**order)
        return caught.value.reason, str(caught.value)


@pytest.fixture
def world(tmp_path):
    return Prepared(tmp_path)


def test_a_node_that_can_be_visited(world):
    before = world.files()
    assert world.run() == OrderResult(
        reason=Reason.DONE,
        message="the node can be visited",
        facts={
            "kernel": KERNEL,
            "driver": "sim 2.0.0",
            "simulated": "the driver image holds no kernel module",
            "kubelet": "1.35.4",
        },
    )
    assert (world.files(), world.kubelet.restarts, world.programs.calls) == (before, ["1.34.4"], 0)


def test_a_real_driver_is_not_called_simulated(world):
    world.show({"simulated": False})
    assert "simulated" not in world.run(kubelet=None).facts


def test_a_kubelet_that_is_not_managed_is_not_asked(world):
    world.kubelet.api_away = True
    assert world.run(kubelet=None).reason is Reason.DONE


def test_another_kernel_than_planned(world):
    assert world.refused(kernel="6.1.0-50-amd64") == (
        Reason.KERNEL_MISMATCH,
        f"the node runs kernel {KERNEL}, the visit was planned for 6.1.0-50-amd64",
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "1.0.0"}, Reason.DRIVER_MISMATCH),
        ({"vendor": "other"}, Reason.DRIVER_MISMATCH),
        ({"kernel": "6.1.0-50-amd64"}, Reason.KERNEL_MISMATCH),
        ({"kernel": 5}, Reason.DRIVER_MISMATCH),
    ],
)
def test_an_image_that_is_not_what_its_object_says(world, changes, reason):
    world.show(changes)
    assert world.refused()[0] is reason


def test_an_image_that_left_no_manifest(world):
    world.manifest.unlink()
    assert world.refused()[0] is Reason.MISSING


def test_a_kubelet_that_was_not_fetched(world):
    reason, message = world.refused(kubelet="1.36.0")
    assert reason is Reason.MISSING
    assert "/var/lib/gpu-upgrader/kubelet/1.36.0" in message


def test_a_kubelet_of_zero_length_after_a_power_cut(world):
    (world.host.state / "kubelet/1.35.4/kubelet").write_bytes(b"")
    assert world.refused()[0] is Reason.CHECKSUM_MISMATCH


def test_an_empty_checksum_file(world):
    (world.host.state / "kubelet/1.35.4/kubelet.sha256").write_text("")
    reason, message = world.refused()
    assert reason is Reason.CHECKSUM_MISMATCH
    assert "says nothing" in message


def test_a_kubelet_that_says_another_version(world):
    fetched = world.host.state / "kubelet"
    (fetched / "1.35.4").rename(fetched / "1.35.5")
    assert world.refused(kubelet="1.35.5") == (
        Reason.CHECKSUM_MISMATCH,
        "the artifact's kubelet says it is 1.35.4, wanted is 1.35.5",
    )


def test_no_kubelet_from_that_file(world):
    world.kubelet.supervised = False
    world.kubelet.signal(world.kubelet.running()[0], 9)
    reason, message = world.refused()
    assert reason is Reason.MISSING
    assert "spec.kubelet.binary" in message


def test_a_kubelet_that_is_sick_before_the_visit(tmp_path):
    world = Prepared(tmp_path, old=Behaviour(version="1.34.4", healthy=False))
    assert "not well before the visit" in world.refused()[1]


def test_a_node_that_is_not_ready_before_the_visit(tmp_path):
    world = Prepared(tmp_path, old=Behaviour(version="1.34.4", ready=False))
    assert "not Ready before the visit" in world.refused()[1]


def test_credentials_that_do_not_show_the_node(world):
    world.kubelet.api_away = True
    assert "connection timed out" in world.refused()[1]


def test_a_full_disk(world):
    reason, message = world.refused(free=1 << 60)
    assert reason is Reason.DISK_FULL
    assert "/var/lib/gpu-upgrader has" in message
