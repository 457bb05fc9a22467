"""Decorator of immutable value classes, which generates methods when they are first called.

`@frozen` is equivalent to `@dataclass(frozen=True, slots=True)`; `fields`, `replace` and `match`
work on it as on any dataclass. Generating all methods at class definition would double the import
time of a package with 300 value classes, and most processes use few of them (ADR 0015).

Mutable or ordered classes use `dataclass`.
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
    """Make a class immutable and compared by its fields; without `eq`, by identity."""

    def declare(cls: type[T]) -> type[T]:
        # `dataclass` requires that a subclass of a frozen class is frozen; it then generates
        # `__setattr__` and `__delattr__`.
        extends_frozen = any(_is_frozen(base) for base in cls.__mro__[1:])
        # Collects the fields and creates the slots, but generates no other method.
        declare_fields = dataclass(
            init=False, repr=False, eq=False, slots=True, kw_only=kw_only, frozen=extends_frozen
        )
        declared = declare_fields(cls)
        _add_methods(declared, is_compared=eq)
        return declared

    return declare if cls is None else declare(cls)


def _add_methods(cls: Any, *, is_compared: bool) -> None:  # noqa: ANN401 - has any fields
    own = cls.__dict__
    # Read by `dataclass` when it declares a subclass.
    cls.__dataclass_params__.frozen = True
    cls.__setattr__, cls.__delattr__ = _refuse_to_set, _refuse_to_delete
    cls.__getstate__, cls.__setstate__ = _get_state, _set_state
    cls.__signature__ = _SIGNATURE
    cls.__init__ = _generate_when_called(cls, "__init__", _init_source)
    if "__repr__" not in own:
        cls.__repr__ = _repr
    if is_compared:
        has_own_hash = own.get("__hash__") is not None
        if "__eq__" not in own:
            cls.__eq__ = _generate_when_called(cls, "__eq__", _eq_source)
        if not has_own_hash:
            cls.__hash__ = _generate_when_called(cls, "__hash__", _hash_source)


# Yields the lines of a method's source, and adds the names that they use to the dict.
Source = Callable[[Any, dict[str, Any]], Iterator[str]]


def _generate_when_called(cls: Any, name: str, source: Source) -> Callable[..., Any]:  # noqa: ANN401
    """A method that generates its replacement. Threads that call it at once generate the same."""

    def generate() -> Callable[..., Any]:
        names: dict[str, Any] = {}
        exec("\n ".join(source(cls, names)), names)  # contains names of fields only
        method: Callable[..., Any] = names[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method

    def stub(*args: object, **kwargs: object) -> object:
        return generate()(*args, **kwargs)

    stub.generate = generate  # type: ignore[attr-defined]
    return stub


class _Signature:
    """Descriptor that returns the signature of `__init__`, for `help` and `inspect`."""

    def __get__(self, instance: object, owner: Any) -> object:  # noqa: ANN401
        from inspect import signature  # noqa: PLC0415 - slow to import, and seldom used

        generate = getattr(owner.__init__, "generate", None)
        found = signature(owner.__init__ if generate is None else generate())
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


# Generated methods


def _init_source(cls: Any, names: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    init_fields = [each for each in fields(cls) if each.init]
    parameters = [_parameter_source(each) for each in init_fields if not each.kw_only]
    keywords = [_parameter_source(each) for each in init_fields if each.kw_only]
    separator = ["*"] if keywords else []
    yield f"def __init__({', '.join(['self', *parameters, *separator, *keywords])}):"
    for each in fields(cls):
        # Sets the slot directly, because `__setattr__` raises.
        names[f"set_{each.name}"] = getattr(cls, each.name).__set__
        if (value := _value_source(each, names)) is not None:
            yield f"set_{each.name}(self, {value})"
    yield "self.__post_init__()" if hasattr(cls, "__post_init__") else "return"


def _parameter_source(field: "Field[Any]") -> str:
    is_optional = field.default is not MISSING or field.default_factory is not MISSING
    return f"{field.name}=default_{field.name}" if is_optional else field.name


def _value_source(field: "Field[Any]", names: dict[str, Any]) -> str | None:
    """The expression that the field is set to; None for a field that `__post_init__` sets."""
    default = f"default_{field.name}"
    if field.default_factory is not MISSING:
        # The factory is also the sentinel default: if it is the argument, it is called.
        names[default] = field.default_factory
        made = f"{default}()"
        return f"{made} if {field.name} is {default} else {field.name}" if field.init else made
    if field.default is not MISSING:
        names[default] = field.default
        return field.name if field.init else default
    return field.name if field.init else None


def _eq_source(cls: Any, names: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    compared = [each.name for each in fields(cls) if each.compare]
    yield "def __eq__(self, other):"
    yield "if other.__class__ is not self.__class__: return NotImplemented"
    yield f"return {_tuple_source('self', compared)} == {_tuple_source('other', compared)}"


def _hash_source(cls: Any, names: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    hashed = [
        each.name for each in fields(cls) if (each.compare if each.hash is None else each.hash)
    ]
    yield "def __hash__(self):"
    yield f"return hash({_tuple_source('self', hashed)})"


def _tuple_source(owner: str, names: list[str]) -> str:
    return "(" + "".join(f"{owner}.{name}, " for name in names) + ")"


# Methods that all classes share


def _refuse_to_set(self: object, name: str, value: object) -> None:
    if _is_immutable(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: object, name: str) -> None:
    if _is_immutable(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_immutable(self: Any, name: str) -> bool:  # noqa: ANN401
    """False for an attribute that a subclass without `@frozen` adds."""
    return _is_frozen(type(self)) or name in self.__dataclass_fields__


def _is_frozen(cls: type) -> bool:
    params = cls.__dict__.get("__dataclass_params__")
    return params is not None and params.frozen


def _repr(self: Any) -> str:  # noqa: ANN401
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _get_state(self: Any) -> list[object]:  # noqa: ANN401
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[object]) -> None:  # noqa: ANN401
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
