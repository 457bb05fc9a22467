"""Unit tests of tools.screenshots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxyless.demo.mesh import EDS
from proxyless.demo.stage import TARGET
from proxyless.demo.terminal import render
from tests.unit.cli.top.process_samples import make_sample
from tests.unit.demo.views import STEPS, VIEW
from tools.screenshots import RecordedViews, draw_terminal, draw_top

if TYPE_CHECKING:
    from proxyless.cli.top.samples import Sample


def test_last_view_of_each_step_is_recorded() -> None:
    views = RecordedViews()
    later = replace(VIEW, sent=2)
    over = replace(VIEW, steps=STEPS[:1], sent=3)
    for view in (VIEW, later, over):
        views.show(view)
    assert views.by_step == {"zone a is killed": later}
    assert views.last == over


def test_terminal_is_rendered_as_svg() -> None:
    svg = draw_terminal(render(VIEW), "proxyless demo").decode()
    assert svg.startswith("<svg ")
    text = svg.replace("&#160;", " ")
    for shown in ("proxyless demo", "zone a is killed", "xds:///greeter", "1,234 sent"):
        assert shown in text


def sample_of_the_demo() -> Sample:
    sample = make_sample()
    channel = sample.channels[0]
    cluster = replace(channel.clusters[0], name=EDS)
    return replace(sample, channels=(replace(channel, target=TARGET, clusters=(cluster,)),))


def test_endpoints_in_top_are_rendered_as_svg() -> None:
    text = draw_top(sample_of_the_demo(), "h:1").decode().replace("&#160;", " ")
    for shown in ("proxyless top h:1", f"endpoints of {EDS}", "10.0.0.1:80", "refused"):
        assert shown in text
