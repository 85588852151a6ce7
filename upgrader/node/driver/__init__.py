"""The driver of the node: its record, its modules and their parameters, the processes that use it, its removal.

Here: programs and files of drivers of all vendors.
Not here: checks of devices (validation); operands, which have images of their own.
"""
