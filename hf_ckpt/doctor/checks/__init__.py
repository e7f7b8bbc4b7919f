"""The checks, one a file: a :class:`~hf_ckpt.doctor.check.Check` under the code and name of a rule of ckpt-lint."""
