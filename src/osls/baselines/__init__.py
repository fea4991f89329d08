"""The methods that PULSE is compared with, all with the same interface."""

from osls.baselines.backprop_oda import BackpropODA
from osls.baselines.cluster_vote import ClusterVote
from osls.baselines.cmu import CMU
from osls.baselines.color import CoLOR
from osls.baselines.dance import DANCE
from osls.baselines.domain_discriminator import DomainDiscriminator
from osls.baselines.eulac import EULAC
from osls.baselines.kpu import KPU
from osls.baselines.lac_forest import LACForest
from osls.baselines.novelty_detectors import Detector
from osls.baselines.open_set_em import OpenSetEM
from osls.baselines.ovanet import OVANet
from osls.baselines.rejection import BestThreshold, best_threshold
from osls.baselines.separate_to_adapt import SeparateToAdapt
from osls.baselines.source_only import SourceOnly
from osls.baselines.uan import UAN

__all__ = [
    "CMU",
    "DANCE",
    "EULAC",
    "KPU",
    "UAN",
    "BackpropODA",
    "BestThreshold",
    "ClusterVote",
    "CoLOR",
    "Detector",
    "DomainDiscriminator",
    "LACForest",
    "OVANet",
    "OpenSetEM",
    "SeparateToAdapt",
    "SourceOnly",
    "best_threshold",
]
