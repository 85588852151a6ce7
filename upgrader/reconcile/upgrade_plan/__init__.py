"""The UpgradePlan: one step of it, its batches, its status, its rollback, what is left when it has ended.

Here: reading a plan, performing what core.upgrade_plan decides, recording it.
Not here: steps of nodes and gangs (upgrade_group).
"""
