"""Measuring: what a policy will cost, and what it held and replayed in the run itself.

Before a run: ``dry_run``, ``forecast``. In a run: ``meter``, ``peak``, ``clock``, joined in ``report``, judged in
``verdict``. Runs of its own: ``bench``; ``hf_ckpt/certificate/`` proves gradients.
"""
