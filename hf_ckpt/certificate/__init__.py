"""The certificate of a step: its loss and gradients are bitwise those without checkpointing, or where they are not.

``certify`` runs one micro-batch four times from the same ``standing`` state: twice without any checkpointing
(``bypass``), twice as the training runs it. Where the ``outcome`` differs, ``recompute_log`` notes every operator of
the checkpointed forwards and of their recomputes in one run more, and ``divergence`` names the first that differs.
"""
