"""What a host is made of: unit files, presets, packages, modules, settings, versions.

Everything is read through `tree.Tree`, which never leaves its root: an unpacked image of strangers
can be looked at as safely as the host itself. `reading_x(tree)` modules answer with plain values.
"""
