"""The protocol between the controller and programs on nodes: orders and results, labels, reports, paths on a node.

Here: both sides of it, as values. Images of nodes contain this package and the files directly in core, nothing else.
Not here: modules that import another package of core.
"""
