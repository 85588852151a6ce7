"""Reconciliation of a GpuStack: its step, drift, upgrades without a plan, plans for drift, status and history.

Here: reading a stack, performing and recording the decisions of core.gpu_stack.
Not here: rollouts (upgrade_plan).
"""
