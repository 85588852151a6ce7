"""The UpgradePlan: its state machine, which of two plans goes first, and what a rollout has cost.

Here: decisions on one plan, from values.
Not here: which nodes come next (forecast), and what blocks one (constraints).
"""
