"""Simulated kernel names of box nodes.

All boxes run on the machine's kernel. A kubelet reads nodeInfo.kernelVersion from uname(2), which no namespace changes,
so an admission policy of the cluster replaces the field, from a ConfigMap with a kernel name per node. In the box
/proc/sys/kernel/osrelease shows the same name; uname(2) still returns the real one.
"""

from upgrader_dev.devcluster.base.api import ApiServer, Object

NAME = "devcluster-kernel-names"
_NAMESPACE = "kube-system"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
_CONFIG_MAPS = f"/api/v1/namespaces/{_NAMESPACE}/configmaps"

_A_KUBELET = 'request.userInfo.username.startsWith("system:node:")'
_PATCH = """
has(params.data) && object.metadata.name in params.data
? [JSONPatch{op: "replace", path: "/status/nodeInfo/kernelVersion", value: params.data[object.metadata.name]}]
: []
"""


def install_policy(api: ApiServer) -> None:
    """Create the policy and its ConfigMap, without names."""
    api.create(_CONFIG_MAPS, {"metadata": {"name": NAME}})
    api.create_or_patch(_POLICIES, _make_policy())
    api.create_or_patch(_BINDINGS, _make_binding())


def set_kernel_name(api: ApiServer, node: str, kernel: str) -> None:
    """Let `node` report `kernel` from now on; empty: the value of its kubelet."""
    api.patch(f"{_CONFIG_MAPS}/{NAME}", {"data": {node: kernel or None}})


def _make_policy() -> Object:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["nodes", "nodes/status"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [rule]},
            # kubelets only: status writes for kwok nodes are not evaluated
            "matchConditions": [{"name": "a-kubelet", "expression": _A_KUBELET}],
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _PATCH}}],
        },
    }


def _make_binding() -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {
            "policyName": NAME,
            "paramRef": {"name": NAME, "namespace": _NAMESPACE, "parameterNotFoundAction": "Allow"},
        },
    }
