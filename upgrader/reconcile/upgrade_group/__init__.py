"""The upgrade group: one step of its nodes and gangs together, by a plan, a stack, or after both are gone.

Here: what nodes and gangs of one group have to know of each other.
Not here: which groups there are (upgrade_plan).
"""
