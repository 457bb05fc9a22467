"""What is a value, and what does it cost to declare one?

`@frozen` makes a class what `@dataclass(frozen=True, slots=True)` makes it, and `fields`, `replace`
and `match` work on it as on any dataclass. But a method is written when it is first called, not
when its class is declared: importing a package of 300 values would otherwise take twice as long,
and most of them are never made in most processes (ADR 0015).

Not for what changes, and not for what has an order: for that, use `dataclass`.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...


@overload
def frozen(*, eq: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    cls: type[T] | None = None, /, *, eq: bool = True, kw_only: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    """A class whose objects are their fields. Without `eq` an object is equal to itself only."""

    def declare(cls: type[T]) -> type[T]:
        # A dataclass is frozen if what it extends is, and then it is as slow to declare as ever.
        extends_frozen = any(_is_frozen(base) for base in cls.__mro__[1:])
        # This collects the fields and makes the slots; otherwise it writes no method.
        declare_fields = dataclass(
            init=False, repr=False, eq=False, slots=True, kw_only=kw_only, frozen=extends_frozen
        )
        declared = declare_fields(cls)
        _add_methods(declared, is_compared=eq)
        return declared

    return declare if cls is None else declare(cls)


# Any: it has the fields of whoever declares it.
def _add_methods(cls: Any, *, is_compared: bool) -> None:  # noqa: ANN401
    own = cls.__dict__
    # For `dataclass`, when it declares a class that extends this one.
    cls.__dataclass_params__.frozen = True
    cls.__setattr__, cls.__delattr__ = _refuse_to_set, _refuse_to_delete
    cls.__getstate__, cls.__setstate__ = _get_state, _set_state
    cls.__signature__ = _SIGNATURE
    cls.__init__ = _write_when_called(cls, "__init__", _write_init)
    if "__repr__" not in own:
        cls.__repr__ = _show
    if is_compared:
        has_own_hash = own.get("__hash__") is not None
        if "__eq__" not in own:
            cls.__eq__ = _write_when_called(cls, "__eq__", _write_eq)
        if not has_own_hash:
            cls.__hash__ = _write_when_called(cls, "__hash__", _write_hash)


Writer = Callable[[Any, dict[str, Any]], Iterator[str]]


def _write_when_called(cls: Any, name: str, write: Writer) -> Callable[..., Any]:  # noqa: ANN401
    """Stands in for a method until somebody calls it. Two threads at once write the same."""

    def write_now() -> Callable[..., Any]:
        names: dict[str, Any] = {}
        exec("\n ".join(write(cls, names)), names)  # only names of fields go in
        method: Callable[..., Any] = names[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method

    def stand_in(*args: object, **kwargs: object) -> object:
        return write_now()(*args, **kwargs)

    stand_in.write_now = write_now  # type: ignore[attr-defined]
    return stand_in


class _Signature:
    """What `help` and `inspect` show of a class: the parameters of its `__init__`, once written."""

    def __get__(self, instance: object, owner: Any) -> object:  # noqa: ANN401
        from inspect import signature  # noqa: PLC0415 - for people who look, not for processes

        write_now = getattr(owner.__init__, "write_now", None)
        found = signature(owner.__init__ if write_now is None else write_now())
        types = {each.name: each.type for each in fields(owner)}
        _, *parameters = found.parameters.values()
        return found.replace(
            parameters=[
                each.replace(annotation=types.get(each.name, each.annotation))
                for each in parameters
            ],
            return_annotation=None,
        )


_SIGNATURE = _Signature()


# The methods that are written: their lines, and in `names` what these use.


def _write_init(cls: Any, names: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    taken = [each for each in fields(cls) if each.init]
    parameters = [_write_parameter(each) for each in taken if not each.kw_only]
    keywords = [_write_parameter(each) for each in taken if each.kw_only]
    separator = ["*"] if keywords else []
    yield f"def __init__({', '.join(['self', *parameters, *separator, *keywords])}):"
    for each in fields(cls):
        # Straight into the slot: what is frozen refuses the usual way.
        names[f"set_{each.name}"] = getattr(cls, each.name).__set__
        if (value := _write_value(each, names)) is not None:
            yield f"set_{each.name}(self, {value})"
    yield "self.__post_init__()" if hasattr(cls, "__post_init__") else "return"


def _write_parameter(field: "Field[Any]") -> str:
    is_optional = field.default is not MISSING or field.default_factory is not MISSING
    return f"{field.name}=default_{field.name}" if is_optional else field.name


def _write_value(field: "Field[Any]", names: dict[str, Any]) -> str | None:
    """What the field is set to; None for one that `__post_init__` sets."""
    default = f"default_{field.name}"
    if field.default_factory is not MISSING:
        # As an argument it stands for itself, and then a new one is made.
        names[default] = field.default_factory
        made = f"{default}()"
        return f"{made} if {field.name} is {default} else {field.name}" if field.init else made
    if field.default is not MISSING:
        names[default] = field.default
        return field.name if field.init else default
    return field.name if field.init else None


def _write_eq(cls: Any, names: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    compared = [each.name for each in fields(cls) if each.compare]
    yield "def __eq__(self, other):"
    yield "if other.__class__ is not self.__class__: return NotImplemented"
    yield f"return {_write_tuple('self', compared)} == {_write_tuple('other', compared)}"


def _write_hash(cls: Any, names: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    hashed = [
        each.name for each in fields(cls) if (each.compare if each.hash is None else each.hash)
    ]
    yield "def __hash__(self):"
    yield f"return hash({_write_tuple('self', hashed)})"


def _write_tuple(owner: str, names: list[str]) -> str:
    return "(" + "".join(f"{owner}.{name}, " for name in names) + ")"


# The methods that all share.


def _refuse_to_set(self: object, name: str, value: object) -> None:
    if _is_kept(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: object, name: str) -> None:
    if _is_kept(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_kept(self: Any, name: str) -> bool:  # noqa: ANN401
    """Whether this is frozen; what an undecorated subclass adds is its own."""
    return _is_frozen(type(self)) or name in self.__dataclass_fields__


def _is_frozen(cls: type) -> bool:
    params = cls.__dict__.get("__dataclass_params__")
    return params is not None and params.frozen


def _show(self: Any) -> str:  # noqa: ANN401
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _get_state(self: Any) -> list[object]:  # noqa: ANN401
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[object]) -> None:  # noqa: ANN401
    for each, held in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, held)
