"""The validation of a node: its driver, each of its devices, and what the kubelet advertises.

Here: checks for all vendors, and for NVIDIA's GPUs, fabric and tools.
Not here: the driver's record and modules (driver); what would make an upgrade fail (survey).
"""
