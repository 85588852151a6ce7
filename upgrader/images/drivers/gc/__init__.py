"""Images and packages that nothing needs any more: listed and deleted.

Here: what is there, and its removal.
Not here: what is needed (core.driver_image).
"""
