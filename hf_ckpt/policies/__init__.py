"""One policy a file. The registry (`hf_ckpt.policy.registry`) finds them: adding a file is all there is to do."""
