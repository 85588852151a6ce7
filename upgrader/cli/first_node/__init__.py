"""`upgrader first-node`: the first hour of upgrader on one real node.

Here: the runs of its phases, its journal and its report as files.
Not here: what the phases are, redaction, the text of the report (core.first_node).
"""
