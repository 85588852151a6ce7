"""Reconciliation of a DriverImage: its step, from its registry to a digest.

Here: reading its registry and its build Job, performing and recording the decisions of core.driver_image.
Not here: images that a stack needs (gpu_stack).
"""
