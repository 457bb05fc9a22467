"""Unit tests of proxyless.cli.top.navigation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxyless.cli.top.navigation import (
    Navigation,
    choose_table,
    describe_selected,
    find_selected,
    order_rows,
    press,
    split_keys,
)
from tests.unit.cli.top.process_samples import make_sample

SAMPLE = make_sample(failed=2)


def after(*keys: str) -> Navigation:
    navigation = Navigation()
    for key in keys:
        navigation = press(navigation, key, SAMPLE)
    return navigation


def selected(navigation: Navigation) -> str:
    rows = order_rows(choose_table(SAMPLE, navigation), navigation)
    return rows[find_selected(rows, navigation)].key


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"\x1b[A\x1b[Bjk", ["up", "down", "down", "up"]),
        (b"\r\x1b[C\x1b", ["enter", "enter", "back"]),
        (b"xq", ["quit"]),
        (b"\x1b[Zs", ["back", "sort"]),
        (b"", []),
    ],
)
def test_bytes_of_a_terminal_are_keys(typed: bytes, keys: list[str]) -> None:
    assert split_keys(typed) == keys


@pytest.mark.parametrize(
    ("keys", "title", "row"),
    [
        ([], "channels", "1"),
        (["down"], "channels", "2"),
        (["down", "down", "up"], "channels", "1"),
        (["enter"], "clusters of xds:///api", "web"),
        (["enter", "down"], "clusters of xds:///api", "old"),
        (["enter", "enter"], "endpoints of web", "10.0.0.1:80"),
        (["enter", "enter", "enter"], "endpoints of web", "10.0.0.1:80"),
        (["enter", "enter", "back"], "clusters of xds:///api", "web"),
        (["enter", "enter", "back", "back"], "channels", "1"),
        (["down", "enter", "back"], "channels", "2"),
        (["back"], "channels", "1"),
    ],
)
def test_keys_select_and_open(keys: list[str], title: str, row: str) -> None:
    navigation = after(*keys)
    assert choose_table(SAMPLE, navigation).title == title
    assert selected(navigation) == row


def test_sort_goes_through_the_columns_and_back_to_the_order_of_the_sample() -> None:
    columns = choose_table(SAMPLE, Navigation()).columns
    seen = [after(*["sort"] * times).sort for times in range(len(columns) + 2)]
    assert seen == ["", *columns, ""]
    assert selected(after("sort")) == "2", "dns before xds"
    assert after("sort", "enter").sort == "", "another table has other columns"


def test_selected_row_stays_selected_when_the_order_changes() -> None:
    navigation = after("down", "reverse")
    rows = order_rows(choose_table(SAMPLE, navigation), navigation)
    assert [row.key for row in rows] == ["2", "1"]
    assert find_selected(rows, navigation) == 0


def test_opened_things_that_are_gone_show_the_table_above() -> None:
    navigation = after("enter", "enter")
    channel = replace(SAMPLE.channels[0], clusters=())
    without = replace(SAMPLE, channels=(channel,))
    assert choose_table(without, navigation).title == "clusters of xds:///api"
    empty = replace(SAMPLE, channels=())
    assert choose_table(empty, navigation).title == "channels"
    for key in ("up", "down", "enter", "sort", "tree", "back"):
        navigation = press(navigation, key, empty)


def test_tree_opens_the_selected_channel_and_back_leaves_it() -> None:
    navigation = after("tree")
    assert navigation.shows_tree
    assert navigation.channel == "1"
    assert not press(navigation, "back", SAMPLE).shows_tree
    assert press(navigation, "back", SAMPLE).channel == "1"


def test_pause_is_toggled_and_other_keys_change_nothing() -> None:
    assert after("pause").is_paused
    assert not after("pause", "pause").is_paused
    assert after("quit", "F1") == Navigation()


def test_details_have_what_the_table_cuts_off() -> None:
    assert describe_selected(SAMPLE, Navigation()) == (
        "last failure: /a/b: UNAVAILABLE: gone; 2 UNAVAILABLE"
    )
    assert describe_selected(SAMPLE, after("down")) == ""
    assert describe_selected(SAMPLE, after("enter", "down")) == "no endpoints"
    assert describe_selected(replace(SAMPLE, channels=()), Navigation()) == ""
