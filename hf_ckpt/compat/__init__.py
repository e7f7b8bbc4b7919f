"""What the insides of transformers, PEFT and the wrappers look like: the only folder that may name them.

One subject a file. No other folder uses a private name of transformers, accelerate or PEFT (a test reads every file):
a new release of theirs is a change here.
"""
