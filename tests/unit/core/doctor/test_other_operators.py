"""Others that drain nodes or swap drivers."""

from upgrader.core.doctor.advice import Severity
from upgrader.core.doctor.other_operators import DaemonSetFacts, other_operators

NODES = {"gpu-0": {}, "gpu-1": {}}


def found(definitions=(), daemonsets=(), nodes=NODES):
    return [(one.subject, one.severity) for one in other_operators(definitions, daemonsets, nodes)]


def test_nobody_else():
    others = [DaemonSetFacts(name="kube-system/kube-proxy", pods=3)]
    assert found(["gpustacks.gpu-upgrader.io"], others) == [("nodes", Severity.OK)]


def test_operators_are_known_by_their_kinds():
    assert found(["nodemaintenances.nodemaintenance.medik8s.io", "plans.upgrade.cattle.io"]) == [
        ("the node maintenance operator", Severity.WARNING),
        ("the system upgrade controller", Severity.WARNING),
    ]


def test_daemonsets_are_known_by_their_names_and_count_where_they_have_pods():
    others = [
        DaemonSetFacts(name="gpu-operator/nvidia-driver-daemonset", pods=2),
        DaemonSetFacts(name="kube-system/kured", pods=0),
        DaemonSetFacts(name="kured/log-collector", pods=2),
    ]
    assert found(daemonsets=others) == [("DaemonSet gpu-operator/nvidia-driver-daemonset", Severity.WARNING)]


def test_a_second_driver_on_our_nodes_is_a_problem():
    labels = {"gpu-0": {"nvidia.com/gpu.deploy.driver": "true"}, "gpu-1": {"nvidia.com/gpu.deploy.driver": "false"}}
    (one,) = other_operators((), (), labels)
    assert one.severity is Severity.PROBLEM
    assert one.message == "It deploys its driver or device plugin on 1 nodes of GpuStacks, gpu-0 among them."
