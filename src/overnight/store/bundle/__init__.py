"""Evidence bundles: the data around one event in one file that another machine can open.

docs/bundles.md describes the format. The file is a zip of one strict form (`archive`); its `home` is a
data home, so every query works on an opened bundle as on the host.
"""
