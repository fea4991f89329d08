"""Backbones: stacked MLPs for tables, convnets and their augmentation for images."""

from osls.training.nets.augment import RandomShiftFlip
from osls.training.nets.fast_convnet import FastConvFeatures
from osls.training.nets.features import StackedMLP
from osls.training.nets.resnet import ResNet9Features, SmallResNet

__all__ = ["FastConvFeatures", "RandomShiftFlip", "ResNet9Features", "SmallResNet", "StackedMLP"]
