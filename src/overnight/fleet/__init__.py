"""The control plane of a fleet: what hosts report, and what is asked of them.

Agents send reports (`reports`) and upload windows (`windows`); tasks (`tasks`) go out with the answer. All of it
is in the database, except windows and compacted rollups, which are files of `blobs`.
"""
