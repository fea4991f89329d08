"""Backbones: stacked MLPs for tables, convnets and their augmentation for images."""

from osls.nets.augment import RandomShiftFlip
from osls.nets.fast_convnet import FastConvFeatures
from osls.nets.mlp import StackedMLP
from osls.nets.resnet import SmallResNet
from osls.nets.resnet9 import ResNet9Features

__all__ = ["FastConvFeatures", "RandomShiftFlip", "ResNet9Features", "SmallResNet", "StackedMLP"]
