"""The ten laws, which judge the journal of a run.

Here: the journal of all changes, the state of the cluster at a time, and the laws of gangs, nodes and records.
Not here: faults and draws, which cause the changes.
"""
