"""A simulated libnvidia-ml.so.1, on which NVIDIA's own nvidia-smi runs without a GPU.

`nvml.c` is the library, `description.py` are the GPUs that it reports, `library.py` compiles it.
"""
