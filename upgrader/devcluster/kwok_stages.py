"""What kwok makes of a pod: it runs until somebody deletes it, or for as long as its annotation says.

kwok's built-in stages end every Job's pod at once, which is no fleet that trains. Keys: kwok.x-k8s.io/v1alpha1 Stage.
"""

from typing import Any

import msgspec

RUN_FOR = "devcluster.gpu-upgrader.io/run-for"  # a Go duration, e.g. 90s; absent: until it is deleted

_ALIVE = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}

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


def stages() -> bytes:
    """The file for kwok's `--config`: YAML documents with one Stage each, for pods only; nodes keep kwok's own."""
    waiting = {"key": ".status.podIP", "operator": "DoesNotExist"}
    running = {"key": ".status.phase", "operator": "In", "values": ["Running"]}
    asked = f'.metadata.annotations["{RUN_FOR}"]'
    ends = _stage("pod-ends", [_ALIVE, running, {"key": asked, "operator": "Exists"}], {"statusTemplate": _SUCCEEDED})
    ends["spec"]["delay"] = {"durationFrom": {"expressionFrom": asked}}
    deleted = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    goes = _stage("pod-goes", [deleted], {"finalizers": {"empty": True}, "delete": True})
    found = [_stage("pod-runs", [_ALIVE, waiting], {"statusTemplate": _RUNNING}), ends, goes]
    return b"\n---\n".join(msgspec.json.encode(one) for one in found)


def _stage(name: str, when: list[dict[str, Any]], then: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": when},
            "next": then,
        },
    }
