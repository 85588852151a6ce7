"""Images and bundles in registries: pushed with their documents, and checked as a consumer does.

Here: many cells in one run, too.
Not here: how one is built (build).
"""
