"""Every label, taint, annotation and finalizer that we set or read; a test checks that docs/marks.md lists them all."""

from upgrader.core.gpu_stack import adoption
from upgrader.core.node_protocol.node_features import LABELS_KERNEL

GROUP = "gpu-upgrader.io"
VERSION = "v1alpha1"
FIELD_MANAGER = "gpu-upgrader"

# Labels on Nodes. Only a NodeUpgrade's acts write the first five.
LABEL_DRIVER = f"{GROUP}/driver"  # image key, or NONE
LABEL_RUNTIME = f"{GROUP}/runtime"  # key of the runtime hook's DaemonSet
LABEL_DEVICE_PLUGIN = f"{GROUP}/device-plugin"  # key of the plugin's DaemonSet
LABEL_OPERANDS = f"{GROUP}/operands"  # ON or OFF
LABEL_REVISION = f"{GROUP}/revision"  # set when a node is given back, removed when it is taken
LABEL_SKIP = f"{GROUP}/skip"  # a person's: leave this node alone

NONE = "none"
ON = "on"
OFF = "off"

TAINT_MAINTENANCE = f"{GROUP}/maintenance"  # value: the group
TAINT_RESERVED = f"{GROUP}/reserved"  # value: the plan that waits for the natural end of what runs there
ANNOTATION_STARTED = f"{GROUP}/started"  # on an upgrade Job: it was started, so somebody else has suspended it
ANNOTATION_CLAIMED_BY = f"{GROUP}/claimed-by"  # uid of the NodeUpgrade that holds the node
ANNOTATION_RELEASED_BY = f"{GROUP}/released-by"  # uid of the NodeUpgrade that released the node last
ANNOTATION_ADOPT = (
    f"{GROUP}/adopt"  # a person's: the node is ours to take over, core.gpu_stack.adoption.Consent as JSON
)
ANNOTATION_ADOPTED = f"{GROUP}/adopted"  # the labels of LABELS_DEPLOY as the take-over found them, as JSON
ANNOTATION_REMOVED_DRIVER = f"{GROUP}/removed-driver"  # as JSON: core.model.fleet.RemovedDriver
ANNOTATION_GPU_FEATURES = (
    f"{GROUP}/gpu-features"  # what feature discovery wrote: core.node_protocol.gpu_features.GpuRecord as JSON
)
ANNOTATION_KUBELET = f"{GROUP}/kubelet-settings"  # settings of the kubelet that a node upgrade has made there, as JSON
ANNOTATION_NODE_FEATURES = (
    f"{GROUP}/node-features"  # what our labeller wrote: core.node_protocol.node_features.FeatureRecord as JSON
)

# On Namespaces, a person's: its pods are changed by the policies in deploy/admission-*.yaml, where these are installed.
STEERING_POLICY = "gpu-upgrader-steering"  # of deploy/admission-steering.yaml and of its binding
REQUESTS_POLICY = "gpu-upgrader-requests"  # of deploy/admission-requests.yaml and of its binding
MOUNTS_POLICY = "gpu-upgrader-checkpoint-mounts"  # of deploy/admission-mounts.yaml and of its binding
LABEL_ADMISSION = f"{GROUP}/admission"

# On owners of gangs (Job...): the record of a stop, written in the same patch as the stop itself.
ANNOTATION_STOPPED = f"{GROUP}/stopped"

# On plans that a stack made by itself: its number among those for this revision.
ANNOTATION_ON_DRIFT = f"{GROUP}/on-drift"

# Set and taken away again, so that a stop which we gave up cannot land any more.
ANNOTATION_FENCE = f"{GROUP}/stop-given-up"

# On members (pods), projected into them by the downward API.
ANNOTATION_REQUEST = f"{GROUP}/checkpoint-request"
ANNOTATION_PARK_SECONDS = f"{GROUP}/park-seconds"

# What a job declares, see docs/checkpointing.md.
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

# On objects that we make.
LABEL_STACK = f"{GROUP}/stack"
LABEL_PLAN = f"{GROUP}/plan"
LABEL_GROUP = f"{GROUP}/group"
LABEL_COMPONENT = f"{GROUP}/component"
LABEL_IMAGE_KEY = f"{GROUP}/image-key"
ANNOTATION_READABLE = f"{GROUP}/readable"  # what a hashed name stands for
ANNOTATION_MANIFEST = f"{GROUP}/manifest"  # hash of what was applied, where it may change while it runs
ANNOTATION_CONFIG = f"{GROUP}/config"  # on pods of operands: a configuration file of theirs, by the downward API
ANNOTATION_NODE_UPGRADE = (
    f"{GROUP}/node-upgrade"  # on pods and Jobs of a node upgrade: its name, too long for a label's value
)

FINALIZER = f"{GROUP}/cleanup"

# Of NVIDIA's GPU Operator. Written by the upgrade of a node that was handed over, and given back if that fails.
LABELS_DEPLOY = adoption.LABELS_DEPLOY

# Read; written by upgrades never, and by our labeller only where nobody else does.
LABEL_KERNEL_NFD = LABELS_KERNEL[0]

# Read, never written.
LABEL_DRIVER_GFD = "nvidia.com/cuda.driver-version.full"
LABELS_RANK = (  # place of a pod in its gang, as its owner counts
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
ANNOTATION_GROUP_TOTAL = "kueue.x-k8s.io/pod-group-total-count"  # on pods of a group: how many there are in all
ANNOTATION_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
ANNOTATIONS_VETO = {  # values by which a pod or its owner forbids any disruption
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}

# Mounts of a job that declares the method `file`.
REQUEST_DIRECTORY = "/etc/gpu-upgrader"  # downward API, with one item for each of the following
REQUEST_FILES = {"checkpoint-request": ANNOTATION_REQUEST, "park-seconds": ANNOTATION_PARK_SECONDS}
ANSWER_DIRECTORY = "/run/checkpoint"
