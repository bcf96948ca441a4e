"""Losses that ask the model to agree with its own past: sharpness-aware training with one gradient per step."""

from vsam.trajectory.loss import TrajectoryLoss, trajectory_loss
from vsam.trajectory.memory import LogitMemory
from vsam.trajectory.mesa import MESALoss
from vsam.trajectory.saf import SAFLoss

__all__ = ["LogitMemory", "MESALoss", "SAFLoss", "TrajectoryLoss", "trajectory_loss"]
