"""The GpuStack: one step of it, drift, upgrades without a plan, proposals of plans, its status and its history.

Here: reading a stack, performing what core.gpu_stack decides, recording it.
Not here: what a plan does for it (upgrade_plan).
"""
