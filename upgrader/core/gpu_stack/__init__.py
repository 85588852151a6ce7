"""The GpuStack: drift and its debouncing, upgrades and plans that a stack makes on drift, its history and its images.

Here: decisions on one stack, from values.
Not here: plans that are under way (upgrade_plan).
"""
