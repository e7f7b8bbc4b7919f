"""The planner: which saved activation of which layer to keep, rebuild or offload, under a byte budget.

Pure decisions (:mod:`.problem`, :mod:`.solve`, :mod:`.cost`, :mod:`.budget`) know no torch; :mod:`.calibrate` and
:mod:`.state` measure the device and the model for them.
"""
