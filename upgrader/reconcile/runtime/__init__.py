"""What every reconciler is given: its ports and settings, and the one way to write a status, an Event or a finalizer.

Here: what has nothing to do with any one kind.
Not here: decisions, and anything that reads more than one object.
"""
