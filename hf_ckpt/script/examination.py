"""What two steps of a script showed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..certificate.certificate import Certificate
    from ..doctor.check import Trouble
    from ..doctor.out_of_memory import Diagnosis
    from ..measuring.report import Report

#: Optimizer steps after which a script is stopped: a ``budget`` policy learns in the first.
STEPS = 2


@dataclass(slots=True)
class Examination:
    """What is known of a script's first training.

    Attributes:
        trainer: The class of its Trainer.
        ran_under: The policy, and whose that is; without one, what the script does itself.
        steps: Optimizer steps that were taken.
        report: What the policy did in the latest measured step; None without a policy.
        checkpoints: Without a policy, how many calls of torch's checkpoint a forward made; None with one.
        certificate: Whether the first step is bitwise the one without checkpointing; None where it did not come to it.
        findings: What the doctor found.
        diagnosis: Why the training ran out of memory; None where it did not.
    """

    trainer: str
    ran_under: str
    steps: int = 0
    report: Report | None = None
    checkpoints: int | None = None
    certificate: Certificate | None = None
    findings: list[Trouble] = field(default_factory=list)
    diagnosis: Diagnosis | None = None

    @property
    def is_right(self) -> bool:
        """Whether checkpointing took effect, the step is proven and nothing was found."""
        return (
            self.checkpoints != 0
            and self.diagnosis is None
            and self.certificate is not None
            and self.certificate.holds
            and not self.findings
        )
