"""The Job that builds one driver image in the cluster. Pure.

Its pod has no rights in the cluster and requires no access outside of it: packages come from the registry that the
image is pushed to.
"""

from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core.driver_build.driver_builds import Identity
from upgrader.core.driver_image.image_names import packages_name
from upgrader.core.model.phases import DriverImagePhase, transition_of
from upgrader.core.naming import object_name
from upgrader.stack.parts import PULL_POLICY, Manifest, empty_dir_volume, volume_mount
from upgrader.stack.settings import BuildSettings
from upgrader.stack.vendors import load_vendors

BUILD = "build"
"""Value of names.LABEL_COMPONENT, and name of the container."""

MARGIN_SECONDS = 120
"""The deadline of the Job is this long before that of its phase, so that the Job reports the reason for the
timeout.
"""

TTL_SECONDS = 86400
"""An ended Job is kept for its logs; its result is already in the status of the DriverImage."""

_AUTH, _KEY, _MODULE_KEY, _WORK = "/auth", "/signing", "/module-signing", "/var/lib/upgrader"


def build_job_name(image: DriverImage) -> str:
    """Name of the Job of this attempt; each attempt has another name."""
    return object_name(
        f"build-{image.spec.version}-{image.spec.kernel}", image.metadata.uid, str(image.status.attempts)
    )


def build_job(image: DriverImage, identity: Identity, settings: BuildSettings) -> Manifest:
    """The Job that builds, verifies, boots, signs and pushes an image; its result is the termination message."""
    labels = {names.LABEL_COMPONENT: BUILD}
    seconds = (transition_of(DriverImagePhase.BUILDING).seconds or 0) - MARGIN_SECONDS
    owner = {
        "apiVersion": DRIVER_IMAGES.api_version,
        "kind": DRIVER_IMAGES.kind,
        "name": image.metadata.name,
        "uid": image.metadata.uid,
        "controller": True,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": build_job_name(image),
            "namespace": settings.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(identity, settings)},
        },
    }


def _pod_spec(identity: Identity, settings: BuildSettings) -> Manifest:
    volumes = [empty_dir_volume("work")]
    mounts = [volume_mount("work", _WORK)]
    if settings.push_auth:
        volumes.append({"name": "auth", "secret": {"secretName": settings.push_auth}})
        mounts.append(volume_mount("auth", _AUTH, readOnly=True))
    if settings.signing:
        volumes.append({"name": "signing", "secret": {"secretName": settings.signing, "defaultMode": 0o400}})
        mounts.append(volume_mount("signing", _KEY, readOnly=True))
    if settings.module_signing:
        # optional: without the Secret the build fails immediately with a message; a kubelet would only wait for it
        secret = {"secretName": settings.module_signing, "defaultMode": 0o400, "optional": True}
        volumes.append({"name": "module-signing", "secret": secret})
        mounts.append(volume_mount("module-signing", _MODULE_KEY, readOnly=True))
    limits = {"cpu": settings.cpu, "memory": settings.memory}
    container = {
        "name": BUILD,
        "image": settings.builder_image,
        "imagePullPolicy": PULL_POLICY,
        "args": _build_arguments(identity, settings),
        "env": _build_environment(settings),
        "resources": {"requests": limits, "limits": limits},
        # buildah creates mounts and a root file system; it requires neither the devices nor the network of the node
        "securityContext": {"privileged": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    return {
        "containers": [container],
        "volumes": volumes,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "serviceAccountName": settings.service_account,
        **({"nodeSelector": dict(settings.node_selector)} if settings.node_selector else {}),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _nodes_without_gpus()}},
    }


def _nodes_without_gpus() -> Manifest:
    """Excludes nodes with GPUs, as shown by a driver label or by discovery labels: their CPUs are for jobs."""
    present = (label for vendor in load_vendors().values() for label in vendor.facts.present)
    return {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": names.LABEL_DRIVER, "operator": "DoesNotExist"},
                    *({"key": label, "operator": "NotIn", "values": ["true"]} for label in present),
                ]
            }
        ]
    }


def _build_arguments(identity: Identity, settings: BuildSettings) -> list[str]:
    words = ["build", "--recipe", identity.recipe, "--driver", identity.driver, "--kernel", identity.kernel]
    words += ["--os", identity.os, "--push", settings.repository]
    words += ["--packages", packages_name(settings.repository, identity)]
    words += ["--termination-message", "/dev/termination-log"]
    for registry in settings.insecure_registries:
        words += ["--insecure-registry", registry]
    if settings.signing:
        words += ["--key", f"{_KEY}/cosign.key", "--public-key", f"{_KEY}/cosign.pub"]
    if settings.module_signing:
        words += ["--module-key", f"{_MODULE_KEY}/tls.key", "--module-certificate", f"{_MODULE_KEY}/tls.crt"]
    # the kubelet would replace $(NAME) by values of the environment of the pod, including a password
    return [word.replace("$", "$$") for word in words]


def _build_environment(settings: BuildSettings) -> list[Manifest]:
    variables = {"XDG_CACHE_HOME": f"{_WORK}/cache", "TMPDIR": _WORK}
    if settings.push_auth:
        variables["REGISTRY_AUTH_FILE"] = f"{_AUTH}/.dockerconfigjson"
    entries: list[Manifest] = [{"name": name, "value": value} for name, value in variables.items()]
    if settings.signing:
        entries.append(_secret_variable("COSIGN_PASSWORD", settings.signing, "cosign.password"))
    if settings.module_signing:
        entries.append(
            _secret_variable("UPGRADER_MODULE_KEY_PASSPHRASE", settings.module_signing, "passphrase", optional=True)
        )
    return entries


def _secret_variable(variable: str, secret: str, key: str, **fields: bool) -> Manifest:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, **fields}}}
