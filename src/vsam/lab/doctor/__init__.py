"""`vsam doctor`: what looks wrong with the machine, and with the user's model, loss and optimizer."""

from vsam.lab.doctor.checkup import check_subject, make_optimizer
from vsam.lab.doctor.finding import Finding
from vsam.lab.doctor.machine import check_machine

__all__ = ["Finding", "check_machine", "check_subject", "make_optimizer"]
