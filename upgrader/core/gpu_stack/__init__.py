"""The GpuStack: drift, when it is believed, what a stack does about it by itself, its history and its images.

Here: decisions on one stack, from values.
Not here: plans that are under way (upgrade_plan).
"""
