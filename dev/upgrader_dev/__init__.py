"""The laboratory of upgrader: an embedded cluster, the demo, and a simulated cluster with faults.

Here: everything that a real cluster does not need. It is the distribution `gpu-upgrader-dev`.
Not here: anything that the product imports; `upgrader` finds these commands by their entry points.
"""

__version__ = "0.1.0"
"""Equal to upgrader.__version__; a test compares them."""
