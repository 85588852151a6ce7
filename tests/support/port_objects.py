"""Manifests for the contract of the Cluster port: a pod that no scheduler binds, a DaemonSet, a suspended Job."""


def pod(name, namespace, *, node="", labels=None):
    container = {"name": "main", "image": "registry.example/none:1"}
    # No scheduler looks at it, so that nobody but the test writes to it.
    spec = {"containers": [container], "terminationGracePeriodSeconds": 5, "schedulerName": "nobody"}
    spec |= {"nodeName": node} if node else {}
    meta = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def daemonset(name, namespace, **annotations):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "i:1"}]}}
    meta = {"name": name, "namespace": namespace, "annotations": annotations}
    return {"metadata": meta, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def job(name, namespace):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i:1"}]}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"suspend": True, "template": template}}
