"""Reconciliation of an upgrade group: the joint step of its nodes and gangs, by a plan, a stack, or without both.

Here: the dependencies between nodes and gangs of one group.
Not here: which groups there are (upgrade_plan).
"""
