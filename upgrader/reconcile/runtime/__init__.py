"""The common base of reconcilers: ports and settings, and functions to write a status, a condition or a finalizer.

Here: functions that are independent of a kind.
Not here: decisions, and reads of more than one object.
"""
