"""Debian archives: which kernels and drivers there are, and their packages, verified and kept.

found = discover(("bookworm", "bookworm-security"), ("main", "contrib", "non-free"), ("nvidia-open-kernel-dkms",))
kernel = found.kernel("6.1.0-50-amd64")
kernel.headers, kernel.image, kernel.compiler    # pinned packages, the name of a compiler's package
found.driver_source(("nvidia-open-kernel-dkms",), "535.261.03")
news(before, found), carried(before, found, store.holds)

store = PackageStore(cache_root() / "packages", Fetcher(cache_root() / "apt/fetching", archives()))
store.fetch(package)                             # the path of a file of exactly that SHA-256
pack(packages, store, folder), unpack(layout, store)    # as an OCI layout, for pods without a way out
"""
