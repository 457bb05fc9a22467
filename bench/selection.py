"""Selection of names by an option such as `--only` or `--clients`."""

from collections.abc import Iterable, Sequence


def select_names(known: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """The known names that are wanted, in their known order.

    A wanted name that is not a known name is a prefix: `unary-16B-1` is one workload, `unary` is
    five. Raises ValueError for a prefix without a match.
    """
    names = list(known)
    chosen: set[str] = set()
    for want in wanted:
        matches = [want] if want in names else [name for name in names if name.startswith(want)]
        if not matches:
            raise ValueError(f"unknown name {want!r}, wanted one of {', '.join(names)}")
        chosen.update(matches)
    return [name for name in names if name in chosen]
