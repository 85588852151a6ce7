"""The targets by name, for programs that do not import what they read with."""

NAMES = (
    "text",
    "document",
    "acknowledgement",
    "progress",
    "saved_forecast",
    "stack_manifest",
    "module",
    "archive_index",
    "definition",
    "registry",
    "bundle",
    "reference",
    "kubeconfig",
    "gpu_report",
    "node_record",
)

PLANTED = b"boom"
"""What the target `planted` breaks at: it shows that the fuzzer finds what there is."""
