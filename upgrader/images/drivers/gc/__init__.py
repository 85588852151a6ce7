"""Lists and deletes images and packages that are no longer needed.

Here: what exists, and its deletion.
Not here: what is needed (core.driver_image).
"""
