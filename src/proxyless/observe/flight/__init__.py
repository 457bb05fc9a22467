"""Flight recorder: what happened in the last minutes, in memory, and as a file on request.

recorder   FlightRecorder: rings of events and RPCs, and the resources
resources  changes of resources, within a limit of bytes
recording  the format of the file: writing and reading
storm      detection of many failures in a short time
files      writing the file: on request, on a signal, on a failure storm

`proxyless replay` reads the file (`sim.replay`).
"""

from proxyless.observe.flight.files import install_signal_handler, write_recording
from proxyless.observe.flight.recorder import FlightRecorder
from proxyless.observe.flight.recording import Entry, Recording, RecordingError, read_lines

__all__ = [
    "Entry",
    "FlightRecorder",
    "Recording",
    "RecordingError",
    "install_signal_handler",
    "read_lines",
    "write_recording",
]
