"""Why a node or gang is not upgraded now: blockers, upgrade groups, budgets, capacity, lanes, windows.

Here: what limits any rollout. A new reason is a member of BlockedReason and one function here.
Not here: the order of what is not blocked (forecast).
"""
