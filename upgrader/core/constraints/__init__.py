"""Constraints of a rollout: blockers, upgrade groups, budgets, capacity, lanes, windows.

Here: what limits any rollout. A new reason is a member of BlockedReason and one function here.
Not here: the order of groups that are not blocked (forecast).
"""
