"""The CheckpointRequest: its state machine, acknowledgements, and admission of gangs to a storage lane.

Here: decisions on one gang, from values.
Not here: reading gangs and writing to them (upgrader/checkpoint, reconcile/checkpoint_request).
"""
