"""The GpuStack: drift and its debouncing, upgrades and plans that a stack creates on drift, its history and its images.

Here: decisions on one stack, from values.
Not here: plans that are in progress (upgrade_plan).
"""
