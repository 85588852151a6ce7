"""Preparing and upgrading a node: checks, then unload, replace, configure, reboot; idempotent after a kill at any line.

Here: the order of the steps, and the record by which they continue.
Not here: the steps themselves (driver, kubelet).
"""
