"""What a driver image is made of: recipes, definitions, toolchains, the manifest inside.

Here: values, and what is chosen from archives.
Not here: compiling.
"""
