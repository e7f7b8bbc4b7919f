"""The planner: which saved activation of which layer to keep, rebuild or offload, under a byte budget.

Pure decisions (:mod:`.costs`, :mod:`.solver`, :mod:`.explain`, :mod:`.budget`) know no torch; :mod:`.calibration` and
:mod:`.memory` measure the device and the model for them; :mod:`.batches` plans a model while it runs.
"""
