"""Unit tests of proxyless.base.frozen, compared with `dataclass(frozen=True, slots=True)`."""

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from proxyless.base.frozen import UNGENERATED_CALLS, frozen, mutable
from proxyless.base.frozen import replace as replace_frozen

T = TypeVar("T")
Decorator = Callable[[type[Any]], type[Any]]


@frozen
class Point:
    """A value with several kinds of fields."""

    ORIGIN: ClassVar[str] = "origin"

    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list, hash=False)
    note: str = field(default="", compare=False, repr=False)


@frozen(kw_only=True)
class Options:
    name: str
    size: int = 1


@frozen(eq=False)
class Thing(Generic[T]):
    held: T


@frozen
class Nothing:
    """Without fields."""


@frozen
class Checked:
    port: int
    text: str = field(init=False)
    twice: int = field(default=2, init=False)
    made: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.port < 0:
            raise ValueError(f"port {self.port}")
        object.__setattr__(self, "text", str(self.port))


@frozen
class Own:
    """With methods of its own."""

    x: int

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7


def declare(decorate: Decorator) -> type[Any]:
    @decorate
    class Made:
        """The same class for both decorators."""

        a: int
        b: str = "b"
        c: tuple[int, ...] = field(default_factory=tuple)

    return Made


OURS = declare(frozen)
THEIRS = declare(dataclass(frozen=True, slots=True))


@pytest.mark.parametrize(
    "make",
    [
        lambda cls: cls(1),
        lambda cls: cls(1, "x", (1, 2)),
        lambda cls: cls(c=(3,), a=2),
        lambda cls: replace(cls(1), b="z"),
        lambda cls: copy.copy(cls(1)),
        lambda cls: copy.deepcopy(cls(1, c=(4,))),
    ],
)
def test_a_frozen_class_behaves_as_a_dataclass(make: Callable[[type[Any]], Any]) -> None:
    ours, theirs = make(OURS), make(THEIRS)
    assert repr(ours) == repr(theirs)
    assert hash(ours) == hash(theirs)
    assert ours == make(OURS)
    assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
    assert OURS.__match_args__ == THEIRS.__match_args__
    assert not hasattr(ours, "__dict__")


@pytest.mark.parametrize(
    "make",
    [
        lambda cls: cls(),
        lambda cls: cls(1, "x", (), 4),
        lambda cls: cls(1, a=1),
        lambda c: c(1, d=2),
    ],
)
def test_wrong_arguments_raise_as_for_a_dataclass(make: Callable[[type[Any]], Any]) -> None:
    texts = []
    for cls in (OURS, THEIRS):
        with pytest.raises(TypeError) as refused:
            make(cls)
        texts.append(str(refused.value))
    assert texts[0] == texts[1]


def test_fields_may_be_excluded_from_eq_hash_and_repr() -> None:
    assert Point(1, note="a") == Point(1, note="b")
    assert Point(1, tags=["x"]) != Point(1)
    assert hash(Point(1, tags=["x"])) == hash(Point(1))
    assert repr(Point(1, note="a")) == "Point(x=1, y=0, tags=[])"
    other: object = (1, 0, [])
    assert Point(1) != other


def test_the_default_factory_is_called_for_each_object() -> None:
    assert Point(1).tags is not Point(1).tags


def test_nothing_can_be_set_or_deleted() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'y'"):
        del point.y
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'other'"):
        point.other = 2  # type: ignore[attr-defined]
    assert (point.x, point.y) == (1, 0)


def test_keyword_only_fields_reject_positional_arguments() -> None:
    assert Options(name="a") == Options(size=1, name="a")
    with pytest.raises(TypeError):
        Options("a")  # type: ignore[call-arg]


def test_without_eq_an_object_is_equal_to_itself_only() -> None:
    one = Thing([1])
    assert one == one  # noqa: PLR0124 - compares an object with itself
    assert one != Thing(one.held)
    assert len({one, Thing(one.held)}) == 2


def test_objects_without_fields_are_equal() -> None:
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert repr(Nothing()) == "Nothing()"


def test_fields_without_init_have_a_default_or_are_set_by_post_init() -> None:
    checked = Checked(80)
    assert (checked.text, checked.twice, checked.made) == ("80", 2, {})
    assert checked.made is not Checked(80).made
    with pytest.raises(ValueError, match="port -1"):
        Checked(-1)


def test_own_methods_are_kept() -> None:
    assert repr(Own(1)) == "own"
    assert Own(1) == Own(2)
    assert hash(Own(1)) == 7


def test_fields_are_matched_by_position() -> None:
    found = None
    match Point(3, 4):
        case Point(x, y):
            found = (x, y)
    assert found == (3, 4)


def test_objects_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Point(1, 2, ["a"]))) == Point(1, 2, ["a"])


def test_objects_of_a_subclass_are_not_equal() -> None:
    @frozen
    class Longer(Point):
        z: int = 3

    class Plain(Point):
        pass

    assert Longer(1, 2, z=4).z == 4
    assert Longer(1) != Point(1)
    assert (Plain(1).x, Plain(1)) == (1, Plain(1))
    assert Point(1) != Plain(1)


def test_a_dataclass_may_extend_it_as_any_frozen_one() -> None:
    @dataclass(frozen=True)
    class Longer(Point):
        z: int = 3

    longer = Longer(1, 2, z=4)
    assert (longer.x, longer.z) == (1, 4)
    assert repr(longer).endswith("Longer(x=1, y=2, tags=[], z=4)")
    for name in ("x", "z", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(longer, name, 2)
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Changing", (Point,), {}))


def test_a_subclass_without_frozen_has_attributes_of_its_own() -> None:
    class Noted(Point):
        def __init__(self, comment: str) -> None:
            super().__init__(1)
            self.comment = comment

    noted = Noted("mine")
    noted.comment = "changed"
    assert noted.comment == "changed"
    del noted.comment
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        noted.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del noted.x
    assert noted.x == 1


def test_the_signature_has_the_parameters_before_the_first_object() -> None:
    @frozen
    class Fresh:
        x: int
        y: str = ""

    class Special(Fresh):
        def __init__(self, other: float) -> None:
            super().__init__(1, str(other))

    assert str(inspect.signature(Fresh)) == "(x: int, y: str = '') -> None"
    assert str(inspect.signature(Special)) == "(other: float) -> None"
    assert Fresh(2) == Fresh(2, "")


def test_method_is_generated_when_it_is_called_often() -> None:
    @frozen
    class Fresh:
        x: int

    def generated() -> set[str]:
        return {name for name in ("__init__", "__eq__", "__hash__") if is_generated(Fresh, name)}

    one = Fresh(1)
    for _ in range(UNGENERATED_CALLS - 1):
        assert Fresh(1).x == 1
    assert generated() == set()
    assert one == Fresh(1)
    assert generated() == {"__init__"}
    for _ in range(UNGENERATED_CALLS):
        assert one == Fresh(1)
    assert generated() == {"__init__", "__eq__"}
    for _ in range(UNGENERATED_CALLS + 1):
        assert hash(one) == hash((1,))
    assert generated() == {"__init__", "__eq__", "__hash__"}


@pytest.mark.parametrize("is_subclass", [False, True])
def test_methods_looked_up_before_their_replacement_still_work(is_subclass: bool) -> None:
    @frozen
    class Base:
        x: int

    @frozen
    class Derived(Base):
        y: int = 0

    cls: Any = Derived if is_subclass else Base
    expected = cls(1)
    # As a thread does that is interrupted by one that generates them.
    init, eq, hash_ = cls.__init__, cls.__eq__, cls.__hash__
    made_fields, match_args = (
        cls.__dict__[name] for name in ("__dataclass_fields__", "__match_args__")
    )
    for _ in range(UNGENERATED_CALLS + 1):
        assert hash(cls(1)) == hash(expected)
        assert cls(1) == expected
    assert is_generated(cls, "__init__")
    one = object.__new__(cls)
    init(one, 1)
    assert eq(one, expected)
    assert hash_(one) == hash(expected)
    assert tuple(each.name for each in fields(cls)) == cls.__match_args__
    assert tuple(made_fields.__get__(None, cls)) == cls.__match_args__
    assert match_args.__get__(None, cls) == cls.__match_args__


def is_generated(cls: type, name: str) -> bool:
    code = getattr(cls, name).__code__
    return bool(code.co_filename == "<string>")


def objects_before_and_after_generation(make: Callable[[], Any]) -> list[Any]:
    made = [make() for _ in range(UNGENERATED_CALLS + 2)]
    return [made[0], made[-1]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Point(1, tags=["a"], note="n"),
        lambda: Options(size=3, name="b"),
        Nothing,
    ],
)
def test_generated_and_other_calls_have_equal_results(make: Callable[[], Any]) -> None:
    before, after = objects_before_and_after_generation(make)
    assert before == after
    assert repr(before) == repr(after)
    assert hash(before) == hash(after)
    for _ in range(UNGENERATED_CALLS + 1):
        assert before == after
        assert before != object()


def test_wrong_arguments_raise_before_and_after_generation() -> None:
    @frozen
    class Fresh:
        x: int
        y: int = field(default=0, init=False)

    texts = set()
    for _ in range(2):
        for wrong in ([], [1, 2]):
            with pytest.raises(TypeError) as refused:
                Fresh(*wrong)
            texts.add(str(refused.value))
        with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
            Fresh(1, y=2)  # type: ignore[call-arg]
    assert len(texts) == 2


def test_mutable_default_raises_at_declaration() -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @frozen
        class Shared:
            x: list[int] = []  # noqa: RUF012 - rejected


def test_subclass_may_change_the_default_of_a_field() -> None:
    @frozen
    class Other(Point):
        y: int = 7

    assert (Other(1).y, Other(1, 2).y, Point(1).y) == (7, 2, 0)
    assert [each.name for each in fields(Other)] == ["x", "y", "tags", "note"]
    assert Other.__match_args__ == ("x", "y", "tags", "note")


@mutable
class Counter:
    name: str
    count: int = 0
    seen: list[str] = field(default_factory=list)
    last: str = field(default="", init=False)


@mutable(eq=False)
class Holder:
    held: object


def test_fields_of_a_mutable_class_can_be_set() -> None:
    for _ in range(UNGENERATED_CALLS + 2):
        counter = Counter("a", seen=["x"])
        counter.count += 1
        counter.last = "x"
        assert (counter.name, counter.count, counter.seen, counter.last) == ("a", 1, ["x"], "x")
    assert is_generated(Counter, "__init__")
    assert not hasattr(Counter("a"), "__dict__")
    assert Counter("a").seen is not Counter("a").seen


def test_mutable_class_is_compared_by_its_fields_and_has_no_hash() -> None:
    assert Counter("a") == Counter("a")
    assert Counter("a", 1) != Counter("a")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter("a"))
    one = Holder([])
    assert one != Holder(one.held)
    assert len({one, Holder(1)}) == 2


def test_dataclass_may_extend_a_mutable_class() -> None:
    @dataclass
    class Longer(Counter):
        unit: str = "s"

    longer = Longer("a", unit="m")
    longer.unit = "h"
    assert (longer.name, longer.unit) == ("a", "h")


@pytest.mark.parametrize("changes", [{}, {"port": 3}])
def test_own_replace_returns_what_that_of_dataclasses_does(changes: dict[str, Any]) -> None:
    assert replace_frozen(Checked(1), **changes) == replace(Checked(1), **changes)
    assert replace_frozen(Options(name="n", size=2), name="m") == Options(name="m", size=2)


@pytest.mark.parametrize("name", ["unknown", "text"])
def test_own_replace_refuses_what_is_no_parameter(name: str) -> None:
    with pytest.raises(TypeError):
        replace_frozen(Checked(1), **{name: "x"})


def test_own_replace_makes_no_field_objects() -> None:
    @frozen
    class Given:
        a: int = 0

    assert replace_frozen(Given(), a=1).a == 1
    assert not isinstance(Given.__dict__["__dataclass_fields__"], dict)
