"""From a definition to an image on this machine: sources, sandbox, compiler, tree, image, boot.

Here: one cell at a time, and the budget that several share.
Not here: registries.
"""
