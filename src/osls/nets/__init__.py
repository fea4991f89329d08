"""Backbones: stacked MLPs for tables, a small residual convnet for images."""

from osls.nets.mlp import StackedMLP
from osls.nets.resnet import SmallResNet

__all__ = ["SmallResNet", "StackedMLP"]
