"""The remembering floor: what outlives calls. A plain lock for a few assignments, no I/O, ``now``
passed in.
"""
