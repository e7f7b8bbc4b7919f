"""The doctor: what a run that goes wrong is told.

``usage``, ``history`` and ``watch`` observe every step, ``census/`` looks once at what holds the memory, ``causes/``
(one a file) tell from both why it was not enough, ``paragraph`` puts it into words. Nothing here changes a run.
"""
