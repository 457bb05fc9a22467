"""The `outlier_detection_experimental` policy: ejects endpoints whose RPCs fail.

Specs: A50.

config      config and its parser
algorithms  pure decision: which endpoints are ejected and which are unejected
endpoints   counters and ejection state of each endpoint, and the subchannel wrappers
policy      the policy: wraps the child's subchannels and runs the interval timer
"""

from proxyless.lb.policies.outlier_detection.config import OutlierDetectionConfig
from proxyless.lb.policies.outlier_detection.policy import OutlierDetectionFactory

__all__ = ["OutlierDetectionConfig", "OutlierDetectionFactory"]
