"""The policies, one family a file. The registry (`hf_ckpt.policy.registry`) finds every policy in these files."""
