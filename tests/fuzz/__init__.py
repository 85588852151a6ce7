"""Readers of what others write, given bytes that nobody wrote: each raises its documented errors and nothing else."""
