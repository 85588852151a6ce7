"""Debian archives: the available kernels and drivers, and their packages, verified and stored.

found = discover_kernels(("bookworm", "bookworm-security"), ("main", "contrib"), ("nvidia-open-kernel-dkms",))
kernel = found.find_kernel("6.1.0-50-amd64")
kernel.headers, kernel.image, kernel.compiler    # pinned packages; the compiler's package name
found.driver_source(("nvidia-open-kernel-dkms",), "535.261.03")
compare_discoveries(before, found), carry_over(before, found, store.has_package)

store = PackageStore(cache_root() / "packages", Fetcher(cache_root() / "apt/fetching", configured_archives()))
store.fetch(package)                             # the path of a file with exactly that SHA-256
pack_packages(packages, store, folder), unpack_packages(layout, store)  # as an OCI layout, for offline build pods
"""
