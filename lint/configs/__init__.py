"""Configuration files as parts of a run: what they say becomes the calls that a script would make.

A file in ``kinds/`` is a kind of configuration; there is no list to add it to.
"""
