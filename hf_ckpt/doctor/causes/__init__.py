"""The causes, one a file: a :class:`~hf_ckpt.doctor.cause.Cause` with its ``name``."""
