"""Driver images: built from a recipe, a kernel and packages of an archive, and checked before they are stored."""
