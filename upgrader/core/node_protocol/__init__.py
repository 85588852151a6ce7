"""What the controller and the programs on nodes exchange: orders and results, labels, reports, paths on a node.

Here: both sides of that as values. Images of nodes carry this package and the files of core itself, nothing else.
Not here: anything that imports another package of core.
"""
