"""The configuration of a host or an unpacked image: units, presets, packages, modules, settings, versions.

Everything is read through `tree.Tree`, which never leaves its root, so an untrusted image is as safe to
read as the host itself.
"""
