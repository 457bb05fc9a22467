"""Unit tests of tools.screenshots."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.demo.views import STEPS, VIEW
from tools.screenshots import RecordedViews, draw_terminal


def test_last_view_of_each_step_is_recorded() -> None:
    views = RecordedViews()
    later = replace(VIEW, sent=2)
    over = replace(VIEW, steps=STEPS[:1], sent=3)
    for view in (VIEW, later, over):
        views.show(view)
    assert views.by_step == {"zone a is killed": later}
    assert views.last == over


def test_terminal_is_rendered_as_svg() -> None:
    svg = draw_terminal(VIEW)
    assert svg.startswith("<svg ")
    text = svg.replace("&#160;", " ")
    for shown in ("proxyless demo", "zone a is killed", "xds:///greeter", "1,234 sent"):
        assert shown in text
