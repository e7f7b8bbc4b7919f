"""The doctor: what a run that goes wrong is told.

``usage``, ``history`` and ``watch`` observe every step, ``census/`` looks once at what holds the memory, ``causes/``
(one a file) tell from both why it was not enough, ``paragraph`` puts it into words. ``checkup`` observes the first
steps for ``checks/`` (one a file), under the codes of ckpt-lint. Of ``observers/``, ``forwards``, ``checkpoint_calls``,
``generations`` and ``switches`` note what runs in one step, ``starved`` follows gradients over several. Nothing here
changes a run.
"""
