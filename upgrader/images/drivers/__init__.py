"""Driver images: from a recipe, a kernel and packages of an archive to an image that is proven before it is kept."""
