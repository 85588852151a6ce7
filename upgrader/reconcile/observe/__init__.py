"""Reads of the cluster for a decision: a snapshot of nodes, gangs, images and plans; revisions; durations; Events.

Here: reads that several kinds share.
Not here: writes, except missing revisions.
"""
