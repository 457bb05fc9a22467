"""Replay of flight recordings: `proxyless replay`.

story      the plan of a re-run, found in a recording
rerun      the re-run in a simulated world, and its comparison with the recording
decisions  decisions in a recording, and their comparison
"""

from proxyless.sim.replay.decisions import Comparison, Decision
from proxyless.sim.replay.rerun import PickComparison, ReplayReport, replay
from proxyless.sim.replay.story import UnsuitableRecordingError

__all__ = [
    "Comparison",
    "Decision",
    "PickComparison",
    "ReplayReport",
    "UnsuitableRecordingError",
    "replay",
]
