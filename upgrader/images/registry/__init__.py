"""Clients of image registries: references, logins, requests, pushing and pulling, attached artifacts.

Here: what goes over a registry's HTTP API.
Not here: building images, and deciding whether an image is trusted (trust).
"""
