"""The inputs of a driver image: recipes, definitions, toolchains, and the manifest in the image.

Here: values, and the choice of packages from archives.
Not here: compiling.
"""
