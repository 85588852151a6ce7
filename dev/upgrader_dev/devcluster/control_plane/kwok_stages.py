"""The stages of kwok for nodes and pods: a node is Ready and reports as seldom as an unchanged kubelet; a pod runs
until it is deleted, or for the duration of its annotation.

The built-in stages of kwok complete every Job's pod immediately. With leases they also write every node's status each
20 s (0.7.0 uses the stage for nodes without leases), and 2,000 such nodes keep a core of the API server busy.
Keys: kwok.x-k8s.io/v1alpha1 Stage.
"""

from typing import Any

import msgspec

RUN_FOR = "devcluster.gpu-upgrader.io/run-for"  # a Go duration, e.g. 90s; absent: until it is deleted

REPORT_SECONDS = 300
"""A kubelet reports an unchanged status this often (nodeStatusReportFrequency); its lease shows that it is alive."""

_ALIVE = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}

_NODE_READY = """
{{ $now := Now }}
phase: Running
addresses:
- { type: InternalIP, address: {{ NodeIP | Quote }} }
- { type: Hostname, address: {{ .metadata.name | Quote }} }
conditions:
- { type: Ready, status: "True", reason: KubeletReady, message: simulated by kwok,
    lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }} }
{{ range (list "MemoryPressure" "DiskPressure" "PIDPressure") }}
- { type: {{ . }}, status: "False", reason: KubeletHasEnough, message: simulated by kwok,
    lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }} }
{{ end }}
"""

_NODE_REPORTS = """
{{ $now := Now }}
conditions:
{{ range .status.conditions }}
- { type: {{ .type }}, lastHeartbeatTime: {{ $now | Quote }} }
{{ end }}
"""

_RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
{{ $host := or .spec.hostNetwork false }}
podIP: {{ PodIPWith .spec.nodeName $host .metadata.uid .metadata.name .metadata.namespace | Quote }}
conditions:
{{ range (list "Initialized" "Ready" "ContainersReady") }}
- { type: {{ . }}, status: "True", lastTransitionTime: {{ $now | Quote }} }
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: { running: { startedAt: {{ $now | Quote }} } }
{{ end }}
"""

_SUCCEEDED = """
{{ $now := Now }}
phase: Succeeded
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state: { terminated: { exitCode: 0, reason: Completed, finishedAt: {{ $now | Quote }} } }
{{ end }}
"""


def make_stages() -> bytes:
    """The file for kwok's `--config`: YAML documents with one Stage each."""
    return b"\n---\n".join(msgspec.json.encode(stage) for stage in (*_node_stages(), *_pod_stages()))


def _node_stages() -> list[dict[str, Any]]:
    ready = '.status.conditions.[] | select( .type == "Ready" ) | .status'
    up = _make_stage(
        "node-up", "Node", [_selector_requirement(ready, "NotIn", "True")], {"statusTemplate": _NODE_READY}
    )
    reports = _make_stage(
        "node-reports", "Node", [_selector_requirement(ready, "In", "True")], {"statusTemplate": _NODE_REPORTS}
    )
    milliseconds = REPORT_SECONDS * 1000
    reports["spec"]["delay"] = {
        "durationMilliseconds": milliseconds,
        "jitterDurationMilliseconds": milliseconds * 11 // 10,
    }
    return [up, reports]


def _pod_stages() -> list[dict[str, Any]]:
    waiting = {"key": ".status.podIP", "operator": "DoesNotExist"}
    running = _selector_requirement(".status.phase", "In", "Running")
    duration = f'.metadata.annotations["{RUN_FOR}"]'
    has_duration = [_ALIVE, running, {"key": duration, "operator": "Exists"}]
    ends = _make_stage("pod-ends", "Pod", has_duration, {"statusTemplate": _SUCCEEDED})
    ends["spec"]["delay"] = {"durationFrom": {"expressionFrom": duration}}
    deleted = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    goes = _make_stage("pod-goes", "Pod", [deleted], {"finalizers": {"empty": True}, "delete": True})
    return [_make_stage("pod-runs", "Pod", [_ALIVE, waiting], {"statusTemplate": _RUNNING}), ends, goes]


def _selector_requirement(key: str, operator: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": [value]}


def _make_stage(name: str, kind: str, when: list[dict[str, Any]], then: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": when},
            "next": then,
        },
    }
