"""Reconciliation of an UpgradePlan: its step, batches, status, rollback, and cleanup after its end.

Here: reading a plan, performing and recording the decisions of core.upgrade_plan.
Not here: steps of nodes and gangs (upgrade_group).
"""
