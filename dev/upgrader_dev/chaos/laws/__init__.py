"""The ten laws as judges of a run's record.

Here: the journal of all changes, what is known of the cluster at a moment, and the laws of gangs, nodes and records.
Not here: faults and draws, which cause the changes.
"""
