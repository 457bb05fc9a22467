"""`proxyless top ADDR`: watches the channels of a running process.

On a terminal it is a table that is redrawn, with keys to sort and to open channels and clusters; in
a pipe it is one table per interval; with `--web` it is the page of the demo, for that process.

command       arguments and runs
sources       samples of a process, from its live service or CSDS
samples       Sample: the channels of a process at one moment, and rates
live_samples  samples of the live service
csds_samples  samples of CSDS
tables        tables of a sample
navigation    the table that is shown, the selected row and the order; keys
keyboard      keys of a terminal
screen        the screen of a terminal
page_view     the view for the page
"""

from proxyless.cli.top.command import EXIT_CODES, fill_parser, run

__all__ = ["EXIT_CODES", "fill_parser", "run"]
