"""Measuring: what a policy will cost, what it held and replayed in the run itself, and whether gradients are equal.

Before a run: ``dry_run``, ``forecast``. In a run: ``meter``, ``peak``, ``clock``, joined in ``report``, judged in
``verdict``. Runs of its own: ``bench``, ``verify``.
"""
