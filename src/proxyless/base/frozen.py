"""Decorator of immutable value classes, which generates a method when it is called often.

`@frozen` is equivalent to `@dataclass(frozen=True, slots=True)`; `fields`, `replace` and `match`
work on it as on any dataclass. A process declares hundreds of value classes and makes one or two
objects of most of them. Generating and compiling their methods would take longer than all the rest
of them, so the first calls of a method go through the fields one by one, and `Field` objects are
made when `fields` is first called (ADR 0015, ADR 0025), which `dataclasses.replace` does and
`replace` does not.

`@mutable` is the same for `@dataclass(slots=True)`. Ordered classes use `dataclass`, or a method of
their own.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from types import MemberDescriptorType
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")
Setter: TypeAlias = Callable[[object, object], None]

# Calls of a method before it is generated, which takes as long as 30 to 40 of them. The first
# config of a process makes 10 or 20 objects of many classes.
UNGENERATED_CALLS: Final = 30


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
        declared: type[T] = _declare(cls, is_compared=eq, is_keyword_only=kw_only)
        return declared

    return declare if cls is None else declare(cls)


@overload
def mutable(cls: type[T], /) -> type[T]: ...


@overload
def mutable(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(field_specifiers=(field,))
def mutable(
    cls: type[T] | None = None, /, *, eq: bool = True
) -> type[T] | Callable[[type[T]], type[T]]:
    """Give a class slots for its fields; with `eq` it is compared by them, and has no hash."""

    def declare(cls: type[T]) -> type[T]:
        declared: type[T] = _declare(cls, is_compared=eq, is_keyword_only=False, is_frozen=False)
        return declared

    return declare if cls is None else declare(cls)


def replace(value: T, /, **changes: object) -> T:
    """Like `dataclasses.replace` for a value of these classes, and makes no `Field` objects."""
    for each in _specs(type(value)):
        if each.is_parameter and each.name not in changes:
            changes[each.name] = getattr(value, each.name)
    return type(value)(**changes)


def _declare(
    cls: Any,  # noqa: ANN401
    *,
    is_compared: bool,
    is_keyword_only: bool,
    is_frozen: bool = True,
) -> Any:  # noqa: ANN401
    """The same class with slots, which requires a new class."""
    namespace = dict(cls.__dict__)
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    names = [name for name, kind in cls.__annotations__.items() if not _is_class_variable(kind)]
    # A slot has no default, so `__init__` sets it.
    defaults = {name: namespace.pop(name) for name in names if name in namespace}
    namespace["__qualname__"] = cls.__qualname__
    namespace["__slots__"] = _new_slots(cls.__bases__, names)
    namespace["__frozen__"] = _Declaration(
        names, defaults, is_keyword_only=is_keyword_only, is_frozen=is_frozen
    )
    if is_compared:
        namespace.setdefault("__eq__", _eq)
        if namespace.get("__hash__") is None:
            namespace["__hash__"] = _hash if is_frozen else None
    namespace.setdefault("__repr__", _repr)
    namespace.update(_SHARED)
    namespace.update(_FROZEN if is_frozen else _MUTABLE)
    declared = type(cls)(cls.__name__, cls.__bases__, namespace)
    if any(type(default).__hash__ is None for default in defaults.values()):
        # `dataclass` raises for a default that all objects would share and could change.
        fields(declared)
    return declared


def _is_class_variable(kind: object) -> bool:
    if isinstance(kind, str):
        return kind.startswith(("ClassVar", "typing.ClassVar"))
    if isinstance(kind, type):
        # A class has no `__origin__`; an attribute that a class lacks is slow to look up.
        return False
    return kind is ClassVar or getattr(kind, "__origin__", None) is ClassVar


def _new_slots(bases: tuple[type, ...], names: list[str]) -> tuple[str, ...]:
    """The names without a slot in a base class."""
    if bases == (object,):
        return tuple(names)
    return tuple(name for name in names if not _has_slot(bases, name))


def _has_slot(bases: tuple[type, ...], name: str) -> bool:
    return any(isinstance(getattr(each, name, None), MemberDescriptorType) for each in bases)


class _Declaration:
    """Fields that a class adds to those of its bases, and what is derived from them later."""

    __slots__ = (
        "calls", "defaults", "has_post_init", "is_frozen", "is_keyword_only", "names", "positional",
        "replaced", "setters", "specs",
    )  # fmt: skip

    def __init__(
        self,
        names: list[str],
        defaults: dict[str, Any],
        *,
        is_keyword_only: bool,
        is_frozen: bool,
    ) -> None:
        self.names = names
        # Values, or `Field` objects.
        self.defaults = defaults
        self.is_keyword_only = is_keyword_only
        self.is_frozen = is_frozen
        # All fields, once they are needed, and what the first calls of `__init__` use.
        self.specs: tuple[_FieldSpec, ...] | None = None
        self.positional: list[str] = []
        # Setters of all fields, if all of them are positional parameters.
        self.setters: list[Setter] | None = None
        self.has_post_init = False
        # Calls of each method until it is generated.
        self.calls: dict[str, int] = {}
        # Shared attributes that the class now has itself.
        self.replaced: set[str] = set()

    def takes_calls(self, method: str) -> bool:
        """Count a call; False when the method should be generated."""
        self.calls[method] = count = self.calls.get(method, 0) + 1
        return count <= UNGENERATED_CALLS


class _FieldSpec:
    """A field as `__init__`, `__eq__` and `__hash__` use it."""

    __slots__ = (
        "default", "factory", "is_compared", "is_hashed", "is_parameter", "is_positional", "name",
        "set",
    )  # fmt: skip

    def __init__(self, cls: Any, name: str, declaration: _Declaration) -> None:  # noqa: ANN401
        self.name = name
        # `__setattr__` raises, so the slot is set directly.
        self.set: Setter = getattr(cls, name).__set__
        given: Any = declaration.defaults.get(name, MISSING)
        if not isinstance(given, Field):
            self.default: Any = given
            self.factory: Any = MISSING
            self.is_compared = self.is_hashed = self.is_parameter = True
            self.is_positional = not declaration.is_keyword_only
            return
        self.default = given.default
        self.factory = given.default_factory
        self.is_compared = given.compare
        self.is_hashed = given.compare if given.hash is None else given.hash
        self.is_parameter = given.init
        is_keyword = declaration.is_keyword_only if given.kw_only is MISSING else given.kw_only
        self.is_positional = self.is_parameter and not is_keyword


def _specs(cls: Any) -> tuple[_FieldSpec, ...]:  # noqa: ANN401
    """All fields of a class: those of its bases first, as in a dataclass."""
    declaration: _Declaration = cls.__frozen__
    if declaration.specs is None:
        by_name = {
            name: _FieldSpec(cls, name, declared)
            for base in reversed(cls.__mro__)
            if (declared := base.__dict__.get("__frozen__")) is not None
            for name in declared.names
        }
        declaration.positional = [name for name, spec in by_name.items() if spec.is_positional]
        if len(declaration.positional) == len(by_name):
            declaration.setters = [spec.set for spec in by_name.values()]
        declaration.has_post_init = hasattr(cls, "__post_init__")
        declaration.specs = tuple(by_name.values())
    return declaration.specs


def _class_with(cls: Any, name: str, value: object) -> Any:  # noqa: ANN401
    """The first class in the resolution order that was declared with this attribute.

    Another thread may have replaced it since it was looked up.
    """
    if cls.__dict__.get(name) is value:
        return cls
    return next(
        each
        for each in cls.__mro__
        if (declaration := each.__dict__.get("__frozen__")) is not None
        and (each.__dict__.get(name) is value or name in declaration.replaced)
    )


def _replace(cls: Any, name: str, value: object) -> None:  # noqa: ANN401
    """Give the class an attribute of its own in place of a shared one."""
    # First: see `_class_with`.
    cls.__frozen__.replaced.add(name)
    setattr(cls, name, value)


# Methods that all classes share until they are generated


def _init(self: Any, *args: object, **kwargs: object) -> None:  # noqa: ANN401
    cls = type(self)
    if cls.__dict__.get("__init__") is not _init:
        cls = _class_with(cls, "__init__", _init)
    if not cls.__frozen__.takes_calls("__init__") or not _set_fields(cls, self, args, kwargs):
        # Also raises the TypeError for wrong arguments.
        _generate(cls, "__init__", _init_source)(self, *args, **kwargs)


def _set_fields(
    cls: Any,  # noqa: ANN401
    self: Any,  # noqa: ANN401
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> bool:
    """Do what a generated `__init__` does; false for wrong arguments."""
    declaration: _Declaration = cls.__frozen__
    specs = declaration.specs or _specs(cls)
    setters = declaration.setters
    if setters is not None and len(args) == len(setters) and not kwargs:
        # The usual call, in half the time.
        for index, value in enumerate(args):
            setters[index](self, value)
    else:
        given = dict(zip(declaration.positional, args, strict=False)) | kwargs
        if len(given) < len(args) + len(kwargs) or not _set_by_name(specs, self, given):
            return False
    if declaration.has_post_init:
        self.__post_init__()
    return True


def _set_by_name(specs: tuple[_FieldSpec, ...], self: object, given: dict[str, Any]) -> bool:
    """Set the given fields, and the defaults of others; false if one is missing or unknown."""
    for each in specs:
        value = given.pop(each.name, each.default) if each.is_parameter else each.default
        if value is MISSING and each.factory is not MISSING:
            value = each.factory()
        if value is not MISSING:
            each.set(self, value)
        elif each.is_parameter:
            return False
    return not given


def _eq(self: Any, other: Any) -> bool:  # noqa: ANN401
    cls = _class_with(type(self), "__eq__", _eq)
    if not cls.__frozen__.takes_calls("__eq__"):
        result: bool = _generate(cls, "__eq__", _eq_source)(self, other)
        return result
    if other.__class__ is not self.__class__:
        return cast("bool", NotImplemented)
    names = [each.name for each in _specs(cls) if each.is_compared]
    return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]


def _hash(self: Any) -> int:  # noqa: ANN401
    cls = _class_with(type(self), "__hash__", _hash)
    if not cls.__frozen__.takes_calls("__hash__"):
        result: int = _generate(cls, "__hash__", _hash_source)(self)
        return result
    return hash(tuple([getattr(self, each.name) for each in _specs(cls) if each.is_hashed]))


# Generated methods

# Yields the lines of a method's source, and adds the names that they use to the dict.
Source = Callable[[Any, dict[str, Any]], Iterator[str]]


def _generate(cls: Any, name: str, source: Source) -> Callable[..., Any]:  # noqa: ANN401
    """Generate the method and set it. Threads that do it at once generate the same."""
    names: dict[str, Any] = {}
    exec("\n ".join(source(cls, names)), names)  # contains names of fields only
    method: Callable[..., Any] = names[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    _replace(cls, name, method)
    return method


def _init_source(cls: Any, names: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    specs = _specs(cls)
    parameters = [_parameter_source(each) for each in specs if each.is_positional]
    keywords = [
        _parameter_source(each) for each in specs if each.is_parameter and not each.is_positional
    ]
    separator = ["*"] if keywords else []
    yield f"def __init__({', '.join(['self', *parameters, *separator, *keywords])}):"
    for each in specs:
        names[f"set_{each.name}"] = each.set
        if (value := _value_source(each, names)) is None:
            continue
        is_frozen = cls.__frozen__.is_frozen
        yield f"set_{each.name}(self, {value})" if is_frozen else f"self.{each.name} = {value}"
    yield "self.__post_init__()" if hasattr(cls, "__post_init__") else "return"


def _parameter_source(spec: _FieldSpec) -> str:
    is_optional = spec.default is not MISSING or spec.factory is not MISSING
    return f"{spec.name}=default_{spec.name}" if is_optional else spec.name


def _value_source(spec: _FieldSpec, names: dict[str, Any]) -> str | None:
    """The expression that the field is set to; None for a field that `__post_init__` sets."""
    default = f"default_{spec.name}"
    if spec.factory is not MISSING:
        # The factory is also the sentinel default: if it is the argument, it is called.
        names[default] = spec.factory
        made = f"{default}()"
        return f"{made} if {spec.name} is {default} else {spec.name}" if spec.is_parameter else made
    if spec.default is not MISSING:
        names[default] = spec.default
        return spec.name if spec.is_parameter else default
    return spec.name if spec.is_parameter else None


def _eq_source(cls: Any, names: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    compared = [each.name for each in _specs(cls) if each.is_compared]
    yield "def __eq__(self, other):"
    yield "if other.__class__ is not self.__class__: return NotImplemented"
    yield f"return {_tuple_source('self', compared)} == {_tuple_source('other', compared)}"


def _hash_source(cls: Any, names: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401
    hashed = [each.name for each in _specs(cls) if each.is_hashed]
    yield "def __hash__(self):"
    yield f"return hash({_tuple_source('self', hashed)})"


def _tuple_source(owner: str, names: list[str]) -> str:
    return "(" + "".join(f"{owner}.{name}, " for name in names) + ")"


# Attributes that `dataclasses`, `match` and `inspect` read


class _Fields:
    """Descriptor that makes the `Field` objects of a class when they are first read."""

    def __get__(self, instance: object, owner: Any) -> "dict[str, Field[Any]]":  # noqa: ANN401
        cls = _class_with(owner, "__dataclass_fields__", self)
        declaration: _Declaration = cls.__frozen__
        body = {"__module__": cls.__module__, "__doc__": cls.__doc__ or "-"}
        body |= {"__annotations__": cls.__annotations__, **declaration.defaults}
        make = dataclass(init=False, repr=False, eq=False, kw_only=declaration.is_keyword_only)
        own: Any = make(type(cls.__name__, (), body))
        found: dict[str, Field[Any]] = {}
        for base in reversed(cls.__mro__[1:]):
            found |= getattr(base, "__dataclass_fields__", {})
        found |= own.__dataclass_fields__
        _replace(cls, "__dataclass_fields__", found)
        return found


class _MatchArgs:
    """Descriptor that returns the names of positional parameters, for `match`."""

    def __get__(self, instance: object, owner: Any) -> tuple[str, ...]:  # noqa: ANN401
        cls = _class_with(owner, "__match_args__", self)
        found = tuple(each.name for each in _specs(cls) if each.is_positional)
        # The next `match` does not call this method.
        _replace(cls, "__match_args__", found)
        return found


class _Signature:
    """Descriptor that returns the signature of `__init__`, for `help` and `inspect`."""

    def __get__(self, instance: object, owner: Any) -> object:  # noqa: ANN401
        from inspect import signature  # noqa: PLC0415 - slow to import, and seldom used

        if owner.__init__ is _init:
            cls = _class_with(owner, "__init__", _init)
            found = signature(_generate(cls, "__init__", _init_source))
        else:
            found = signature(owner.__init__)
        types = {each.name: each.type for each in fields(owner)}
        _, *parameters = found.parameters.values()
        return found.replace(
            parameters=[
                each.replace(annotation=types.get(each.name, each.annotation))
                for each in parameters
            ],
            return_annotation=None,
        )


class _FrozenParams:
    """`dataclass` reads it when it declares a subclass."""

    init = repr = eq = frozen = True
    order = unsafe_hash = False


class _MutableParams(_FrozenParams):
    """The same for a mutable class."""

    frozen = False


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
    """Whether the attribute is immutable: not one that a subclass without `@frozen` adds."""
    return "__frozen__" in type(self).__dict__ or name in self.__dataclass_fields__


def _repr(self: Any) -> str:  # noqa: ANN401
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _get_state(self: Any) -> list[object]:  # noqa: ANN401
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[object]) -> None:  # noqa: ANN401
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_SHARED: Final = {
    "__init__": _init,
    "__getstate__": _get_state,
    "__setstate__": _set_state,
    "__dataclass_fields__": _Fields(),
    "__match_args__": _MatchArgs(),
    "__signature__": _Signature(),
}
_FROZEN: Final = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__dataclass_params__": _FrozenParams,
}
_MUTABLE: Final = {"__dataclass_params__": _MutableParams}
