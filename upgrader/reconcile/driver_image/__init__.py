"""The DriverImage: one step of it, from its registry to a digest.

Here: reading its registry and its build Job, performing what core.driver_image decides, recording it.
Not here: which images a stack asks for (gpu_stack).
"""
