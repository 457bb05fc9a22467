"""Do the pictures of the demo show what was seen?"""

from __future__ import annotations

from dataclasses import replace

from tests.unit.demo.views import STEPS, VIEW
from tools.screenshots import Album, draw_terminal


def test_an_album_keeps_the_last_view_of_each_step() -> None:
    album = Album()
    later = replace(VIEW, sent=2)
    over = replace(VIEW, steps=STEPS[:1], sent=3)
    for view in (VIEW, later, over):
        album.show(view)
    assert album.by_step == {"zone a is killed": later}
    assert album.last == over


def test_the_terminal_is_drawn_as_svg() -> None:
    svg = draw_terminal(VIEW)
    assert svg.startswith("<svg ")
    text = svg.replace("&#160;", " ")
    for shown in ("proxyless demo", "zone a is killed", "xds:///greeter", "1,234 sent"):
        assert shown in text
