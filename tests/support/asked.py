"""Pods that are asked, requests for them, and what they say."""

import json

import msgspec

from tests.support.manifests import checkpoint_request
from upgrader.api import names
from upgrader.api.resources import PODS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint import pod_annotations
from upgrader.core.checkpoint_request.acknowledgements import Ack


def add_pod(cluster, name, *, annotations=None, phase="Running"):
    body = {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "sidecar"}, {"name": "trainer"}]},
        "status": {"phase": phase},
    }
    return msgspec.convert(cluster.store.put(PODS, body), pod_annotations.Pod)


HOW = {"command": ["/app/save", "--all"], "endpoint": ":8080/ckpt", "signal": "SIGUSR1"}


def request_for(*pods, request_id=100, acks=(), **spec):
    body = checkpoint_request()
    body["spec"] |= HOW | spec
    body["spec"] |= {
        "requestId": request_id,
        "members": [
            {"pod": pod.metadata.name, "uid": pod.metadata.uid, "node": "node-1", "container": "trainer"}
            for pod in pods
        ],
    }
    return msgspec.convert(body | {"status": {"acks": list(acks)}}, CheckpointRequest)


def marked(cluster, pod):
    """Our annotations on a pod."""
    annotations = cluster.store.find(PODS, pod.metadata.name, "default")["metadata"].get("annotations", {})
    return annotations.get(names.ANNOTATION_REQUEST), annotations.get(names.ANNOTATION_PARK_SECONDS)


def ack(pod, **changes):
    said = {"requestId": 100, "podUid": pod.metadata.uid, "step": 7, "uri": "/data/c", "parked": True}
    return json.dumps({**said, **changes}).encode()


def answer(uid, **changes):
    said = {"pod_uid": uid, "request_id": 100, "step": 7, "uri": "/data/c", "parked": True}
    return Ack(**{**said, **changes})
