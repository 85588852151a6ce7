"""The UpgradePlan: its state machine, the precedence of plans, and the actual loss of a rollout.

Here: decisions on one plan, from values.
Not here: which nodes are next (forecast), and what blocks a node (constraints).
"""
