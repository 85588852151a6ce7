"""All labels, taints, annotations and finalizers that are set or read.

A test checks that docs/reference/labels-annotations-taints.md lists them.
"""

from upgrader.core.gpu_stack import adoption
from upgrader.core.node_protocol.node_features import LABELS_KERNEL

GROUP = "gpu-upgrader.io"
VERSION = "v1alpha1"
FIELD_MANAGER = "gpu-upgrader"

# Labels on Nodes. Only the acts of a NodeUpgrade write the first five.
LABEL_DRIVER = f"{GROUP}/driver"  # image key, or NONE
LABEL_RUNTIME = f"{GROUP}/runtime"  # key of the runtime hook's DaemonSet
LABEL_DEVICE_PLUGIN = f"{GROUP}/device-plugin"  # key of the plugin's DaemonSet
LABEL_OPERANDS = f"{GROUP}/operands"  # ON or OFF
LABEL_REVISION = f"{GROUP}/revision"  # set at the release of a node, removed when its upgrade starts
LABEL_SKIP = f"{GROUP}/skip"  # set by a user: the node is not upgraded

NONE = "none"
ON = "on"
OFF = "off"

TAINT_MAINTENANCE = f"{GROUP}/maintenance"  # value: the group
TAINT_RESERVED = f"{GROUP}/reserved"  # value: the plan that waits for completion of the jobs on the node
ANNOTATION_STARTED = f"{GROUP}/started"  # on an upgrade Job: it was started, so another client suspended it
ANNOTATION_CLAIMED_BY = f"{GROUP}/claimed-by"  # uid of the NodeUpgrade that holds the node
ANNOTATION_RELEASED_BY = f"{GROUP}/released-by"  # uid of the NodeUpgrade that released the node last
ANNOTATION_ADOPT = (
    f"{GROUP}/adopt"  # set by a user: the node may be taken over, core.gpu_stack.adoption.AdoptionConsent as JSON
)
ANNOTATION_ADOPTED = f"{GROUP}/adopted"  # the values of LABELS_DEPLOY and LABELS_PAUSED before, as JSON
ANNOTATION_REMOVED_DRIVER = f"{GROUP}/removed-driver"  # as JSON: core.model.fleet.RemovedDriver
ANNOTATION_GPU_FEATURES = (
    f"{GROUP}/gpu-features"  # written by feature discovery: core.node_protocol.gpu_features.GpuRecord as JSON
)
ANNOTATION_KUBELET = f"{GROUP}/kubelet-settings"  # kubelet settings that a node upgrade has written, as JSON
ANNOTATION_PARAMETERS = f"{GROUP}/module-parameters"  # with which a node upgrade has loaded the driver, as JSON
ANNOTATION_NODE_FEATURES = (
    f"{GROUP}/node-features"  # written by the labeller: core.node_protocol.node_features.FeatureRecord as JSON
)

# On Namespaces, set by a user: the policies in deploy/admission-*.yaml, if installed, change the pods of the namespace.
STEERING_POLICY = "gpu-upgrader-steering"  # of deploy/admission-steering.yaml and of its binding
REQUESTS_POLICY = "gpu-upgrader-requests"  # of deploy/admission-requests.yaml and of its binding
MOUNTS_POLICY = "gpu-upgrader-checkpoint-mounts"  # of deploy/admission-mounts.yaml and of its binding
LABEL_ADMISSION = f"{GROUP}/admission"

# On owners of gangs (Job...): the record of a stop, written in the same patch as the stop.
ANNOTATION_STOPPED = f"{GROUP}/stopped"

# On plans that a stack created automatically: the number of the plan among those for its revision.
ANNOTATION_ON_DRIFT = f"{GROUP}/on-drift"

# Set and removed again, so that the patch of an abandoned stop is rejected.
ANNOTATION_FENCE = f"{GROUP}/stop-given-up"

# On members (pods), projected into their containers by the downward API.
ANNOTATION_REQUEST = f"{GROUP}/checkpoint-request"
ANNOTATION_PARK_SECONDS = f"{GROUP}/park-seconds"

# Declared by jobs, see docs/guides/job-authors/checkpointing.md.
ANNOTATION_METHOD = f"{GROUP}/checkpoint-method"
ANNOTATION_CONTAINER = f"{GROUP}/checkpoint-container"
ANNOTATION_TIMEOUT = f"{GROUP}/checkpoint-timeout"
ANNOTATION_COMMAND = f"{GROUP}/checkpoint-command"
ANNOTATION_ENDPOINT = f"{GROUP}/checkpoint-endpoint"
ANNOTATION_SIGNAL = f"{GROUP}/checkpoint-signal"
ANNOTATION_LANE = f"{GROUP}/checkpoint-lane"
ANNOTATION_PATH = f"{GROUP}/checkpoint-path"
ANNOTATION_ACK_SCOPE = f"{GROUP}/ack-scope"
ANNOTATION_MIN_RUNTIME = f"{GROUP}/min-runtime"
ANNOTATION_EXPECTED_RUNTIME = f"{GROUP}/expected-runtime"
ANNOTATION_EXPECTED_COMPLETION = f"{GROUP}/expected-completion-time"
ANNOTATION_MAX_LOSS = f"{GROUP}/max-loss"
ANNOTATION_ON_DEADLINE = f"{GROUP}/on-deadline"

# On objects that the controller creates.
LABEL_STACK = f"{GROUP}/stack"
LABEL_PLAN = f"{GROUP}/plan"
LABEL_GROUP = f"{GROUP}/group"
LABEL_COMPONENT = f"{GROUP}/component"
LABEL_IMAGE_KEY = f"{GROUP}/image-key"
ANNOTATION_READABLE = f"{GROUP}/readable"  # the readable form of a hashed name
ANNOTATION_MANIFEST = f"{GROUP}/manifest"  # hash of the applied manifest, if the manifest may change at run time
ANNOTATION_CONFIG = f"{GROUP}/config"  # on pods of operands: their configuration file, by the downward API
ANNOTATION_NODE_UPGRADE = (
    f"{GROUP}/node-upgrade"  # on pods and Jobs of a node upgrade: its name, which is too long for a label value
)

FINALIZER = f"{GROUP}/cleanup"

# Of NVIDIA's GPU Operator. Written by the upgrade of an adopted node; LABELS_DEPLOY are restored if the upgrade fails,
# LABELS_PAUSED when the operands of the node are on again.
LABELS_DEPLOY = adoption.LABELS_DEPLOY
LABELS_PAUSED = adoption.LABELS_PAUSED

# Read. Never written by upgrades; written by the labeller only if no other program writes it.
LABEL_KERNEL_NFD = LABELS_KERNEL[0]

# Read, never written.
LABEL_DRIVER_GFD = "nvidia.com/cuda.driver-version.full"
LABELS_RANK = (  # index of a pod in its gang, as set by its owner
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
ANNOTATION_GROUP_TOTAL = "kueue.x-k8s.io/pod-group-total-count"  # on pods of a group: the number of pods of the group
ANNOTATION_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
ANNOTATIONS_VETO = {  # values by which a pod or its owner forbids disruptions
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}

# Mounts of a job that declares the method `file`.
REQUEST_DIRECTORY = "/etc/gpu-upgrader"  # downward API volume with one item for each of the following
REQUEST_FILES = {"checkpoint-request": ANNOTATION_REQUEST, "park-seconds": ANNOTATION_PARK_SECONDS}
ANSWER_DIRECTORY = "/run/checkpoint"
