"""Reading the cluster for a decision: one snapshot of nodes, gangs, images and plans; revisions; durations; Events.

Here: reads that several kinds share.
Not here: writes, but for revisions, which a reading makes where they are missing.
"""
