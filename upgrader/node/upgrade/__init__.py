"""Preparing and upgrading a node: proofs before, then unload, swap, set, reboot; killed at any line and run again.

Here: the order of steps, and the record by which they go on.
Not here: each step itself (driver, kubelet).
"""
