"""The strict base of every document, and the field types and hints that documents share."""

import bisect
import hashlib
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, cast, get_type_hints

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from models.units import (
    MAX_AMOUNT,
    MAX_DIGITS,
    InvalidValueError,
    described,
    duration_text,
    epoch_seconds,
    exact,
    number,
    offered,
    quantity,
    quantity_text,
    requested,
    seconds,
    shown,
    shown_of,
    significant_digits,
    time_text,
)

API_VERSION = "gangplan.dev/v1alpha1"
ApiVersion = Literal["gangplan.dev/v1alpha1"]


def document_tree(kind: str, name: str, spec: object, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """A document as plain values. ``more``: other metadata."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, **more},
        "spec": spec,
    }


MAX_ITEMS = 200_000
"""Most entries of one list; checked before any entry is."""

MAX_FIELDS = 10_000
"""Most fields of one object; checked likewise."""

Path = tuple[str | int, ...]
"""A place inside a document: field names and list positions."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """Something wrong with a field. ``at_key``: its place is the field's name, not its value."""

    path: Path
    what: str
    hint: str | None = None
    at_key: bool = False


def twice(
    names: Iterable[Hashable], path: Path, what: str, hint: str = "list it once", field: Path = ()
) -> Iterator[FieldError]:
    """An error for every name that stands before it already in the list at ``path``.

    ``what``: with {} for the name. ``field``: of the entry that has the name.
    """
    seen: set[Hashable] = set()
    for i, name in enumerate(names):
        if name in seen:
            text = shown(name) if isinstance(name, str) else name
            yield FieldError((*path, i, *field), what.format(text), hint)
        seen.add(name)


def within(path: Path, errors: Iterable[FieldError]) -> Iterator[FieldError]:
    """The errors of a part of a document, with paths that start at the document."""
    for error in errors:
        yield replace(error, path=(*path, *error.path))


_STRICT = ConfigDict(
    strict=True,
    defer_build=True,
    frozen=True,
    extra="forbid",
    alias_generator=to_camel,
    allow_inf_nan=False,
    hide_input_in_errors=True,
)


class Document(BaseModel):
    """Base of every object: strict, frozen, no unknown fields; field names in camelCase."""

    model_config = _STRICT

    @classmethod
    def of(cls, source: object, **different: object) -> Self:
        """The document with the attributes of ``source`` that have the names of its fields, pairs as a map.

        ``different``: fields with other names or values. Values are trusted, not validated.
        """
        found: dict[str, Any] = dict(different)
        for name, mapped in _mapped(cls).items():
            if name not in found:
                value = getattr(source, name)
                found[name] = dict(value) if mapped else value
        return cls.model_construct(**found)

    def to_json(self) -> dict[str, Any]:
        """The canonical JSON object: fields in order, every quantity written one way."""
        return self.model_dump(mode="json", by_alias=True)


@lru_cache
def _mapped(kind: type[BaseModel]) -> dict[str, bool]:
    """The fields of a document, and whether each is a map."""
    return {name: "dict[" in str(info.annotation) for name, info in kind.model_fields.items()}


class Data:
    """Base of the parts of documents that an instance has as they are, so that their fields stand once.

    Frozen dataclasses, annotated as fields of a Document: checked where they are read, trusted elsewhere.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        """Of objects, too: a strict dataclass would only be read of its instances. Its fields stay strict."""
        schema = handler(source)
        cast("dict[str, Any]", handler.resolve_ref_schema(schema))["strict"] = False
        return schema

    @classmethod
    def read(cls, tree: object) -> Self:
        """What a JSON object says. Raises ValidationError."""
        found: Self = _adapter((cls,)).validate_python(tree)
        return found

    def to_json(self) -> dict[str, Any]:
        """The canonical JSON object, as of a Document."""
        found: dict[str, Any] = _adapter((type(self),)).dump_python(
            self, mode="json", by_alias=True
        )
        return found


@lru_cache
def _adapter(kind: tuple[type[Data]]) -> TypeAdapter[Any]:
    return TypeAdapter(*kind)


def fields_of(kind: type[BaseModel | Data]) -> dict[str, FieldInfo]:
    """The fields of a Document or of Data by their names in documents."""
    if issubclass(kind, BaseModel):
        return {info.alias or name: info for name, info in kind.model_fields.items()}
    hints = get_type_hints(kind, include_extras=True)
    del hints["__pydantic_config__"]
    found = {name: FieldInfo.from_annotation(hint) for name, hint in hints.items()}
    return {info.alias or to_camel(name): info for name, info in found.items()}


def _finite(value: object) -> object:
    """The value, unless a number in it is beyond what JSON can be written with again."""
    try:
        json.dumps(value, allow_nan=False, default=float)
    except RecursionError:
        return value  # of no text; whoever writes it refuses it
    except ValueError:
        raise InvalidValueError("this number is too large", "write a finite number") from None
    return value


class Open(Document):
    """An object that may have fields of a newer minor version."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_finite)]] = Field(init=False)


def omitted(default: Any = None, description: str | None = None, **field: Any) -> Any:  # noqa: ANN401  # as Field
    """A field that the canonical form leaves out at its default; ``field``: arguments of Field.

    In Data it is an annotation, and the default stands behind it again.
    """
    field["description"] = description
    return Field(default=default, exclude_if=lambda value: value == default, **field)


def bounded(value: object) -> object:
    """The value, unless it is a list of more than MAX_ITEMS, or an object of more than MAX_FIELDS."""
    if isinstance(value, list) and len(value) > MAX_ITEMS:
        raise InvalidValueError(f"a list of {len(value):,} entries", f"the most is {MAX_ITEMS:,}")
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise InvalidValueError(
            f"an object of {len(value):,} fields", f"the most is {MAX_FIELDS:,}"
        )
    return value


T = TypeVar("T")
K = TypeVar("K")


def made(kind: type[T], *sources: object, **different: object) -> T:
    """A dataclass or struct with the attributes named as its fields, each of the first source that has it.

    The inverse of ``Document.of``: maps become sorted pairs. ``different``: other values.
    """
    names, getters = _shares((kind, *different), tuple(map(type, sources)))
    found = [value for get, one in zip(getters, sources, strict=True) for value in get(one)]
    if dict in set(map(type, found)):  # few have any
        found = [tuple(sorted(one.items())) if type(one) is dict else one for one in found]
    different.update(zip(names, found, strict=True))
    different.pop("__class__", None)
    if hasattr(kind, "__slots__") or hasattr(kind, "__post_init__"):
        return kind(**different)
    one = object.__new__(kind)  # its own way sets the fields one by one: a third of all reading
    vars(one).update(different)
    return one


@lru_cache
def _shares(wanted: tuple[Any, ...], sources: tuple[type, ...]) -> tuple[list[str], list[Any]]:
    """The fields that the sources give, and what gets those of each at once.

    ``wanted``: the type, and its other fields. Raises TypeError for a field that none has.
    """
    kind, *different = wanted
    every = getattr(kind, "__struct_fields__", None) or [field.name for field in fields(kind)]
    left, names, getters = set(every).difference(different), [], []
    for source in sources:
        has = getattr(source, "model_fields", getattr(source, "__dataclass_fields__", ()))
        own = sorted(name for name in left if name in has or hasattr(source, name))
        left.difference_update(own)
        own += ["__class__"] * 2  # of one name alone attrgetter gives no tuple
        getters.append(attrgetter(*own))
        names += own
    if left:
        raise TypeError(f"{kind.__name__}: nothing has {', '.join(sorted(left))}")
    return names, getters


def digest(document: object) -> str:
    """``sha256:<hex>`` of the document as compact JSON with sorted keys, in UTF-8.

    Raises ValueError, TypeError and RecursionError for what is no JSON.
    """
    text = msgspec.json.encode(document, order="sorted")
    if b"0.0000" in text or _EXPONENT.search(text):
        written = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        text = written.encode()
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


_EXPONENT = re.compile(rb"e-?[0-9]+(?:[],}]|\Z)")
"""Ends a number that msgspec, six times as fast, writes otherwise than Python; so it does below 0.0001."""

Many = Annotated[tuple[T, ...], Field(strict=False), BeforeValidator(bounded)]
"""A list, kept as a tuple; only the conversion of the list itself is not strict."""

Mapped = Annotated[dict[K, T], BeforeValidator(bounded)]
"""An object with free field names."""


Read = dict[tuple[object, int | str], tuple[object, object]]
"""Parts of a document that were read: by field and identity, or text, the part and what it was read as."""


def read_once() -> WrapValidator:
    """Annotation of a part of which many of a document are equal, or are one object as our writer makes them.

    With a ``Read`` as the context of the validation, equal parts are read once for this field.
    """

    def read(value: object, read_it: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        known: Read | None = info.context
        if known is None:
            return read_it(value)
        key = (read, id(value))
        if key not in known:
            # JSON values that print alike are equal, in their types as well
            text = (read, repr(value))
            if text not in known:
                known[text] = (value, read_it(value))
            known[key] = (value, known[text][1])
        return known[key][1]

    return WrapValidator(read)


def _matching(
    pattern: str, longest: int, what: str, hint: str, *, repeats: bool = True
) -> tuple[AfterValidator, WithJsonSchema]:
    """Validator and schema of a text of one form. Results are cached where the same texts repeat."""
    has_form = re.compile(pattern).fullmatch

    def check(text: str) -> str:
        if len(text) > longest:
            long = f"{what} {shown(text)} is too long"
            raise InvalidValueError(long, f"the most is {longest} characters")
        if not has_form(text):
            raise InvalidValueError(f"{shown(text)} cannot be {what}", hint)
        return text

    schema = {"type": "string", "pattern": f"^{pattern}$", "maxLength": longest}
    return AfterValidator(lru_cache(1 << 16)(check) if repeats else check), WithJsonSchema(schema)


def checked(check: Callable[[str], object]) -> AfterValidator:
    """Annotation of a text that a check, which raises for others, lets pass."""
    return AfterValidator(lambda text: (check(text), text)[1])


NAME_HINT = "letters, digits, '-', '_' and '.', with a letter or digit at both ends"
NAME_FORM = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"

Name = Annotated[str, *_matching(NAME_FORM, 253, "a name", NAME_HINT, repeats=False)]

SchedulerName = Annotated[
    str, *_matching(rf"({NAME_FORM}|\*)", 253, "the name of a scheduler", f"{NAME_HINT}; or '*'")
]

ShortName = Annotated[str, *_matching(NAME_FORM, 63, "a short name", NAME_HINT)]

HostRange = Annotated[
    str,
    *_matching(
        r"[A-Za-z0-9\[]([A-Za-z0-9._,\[\]-]*[A-Za-z0-9\]])?",
        1000,
        "a node name or host range",
        "write a name like gpu-07 or a range like gpu-[01-16,20]",
        repeats=False,
    ),
]

KEY_FORM = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"

LabelKey = Annotated[
    str,
    *_matching(
        KEY_FORM,
        317,
        "a label or resource name",
        "write it like example.com/rack: a prefix of lower case and a name of at most 63 characters",
    ),
]

LabelValue = Annotated[
    str, *_matching(rf"({NAME_FORM})?", 63, "a label value", f"{NAME_HINT}; or empty")
]


@lru_cache(maxsize=1 << 12)
def _title(text: str) -> str:
    if not text or text != text.strip() or not text.isprintable():
        hint = "write printable characters, at least one, without blanks at the ends"
        raise InvalidValueError(f"{shown(text)} cannot be a name", hint)
    if len(text) > 253:
        raise InvalidValueError(f"the name {shown(text)} is too long", "the most is 253 characters")
    return text


def _prose(text: str) -> str:
    if len(text) > 2000 or not text.isprintable():
        hint = "write at most 2,000 printable characters"
        raise InvalidValueError(f"{shown(text)} is not allowed here", hint)
    return text


_TITLE = WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 253})
Title = Annotated[str, AfterValidator(_title), _TITLE]
"""A product's name: blanks and brackets allowed, control characters not."""

Prose = Annotated[str, AfterValidator(_prose)]

Sentence = Annotated[str, Field(min_length=1), AfterValidator(_prose)]
"""Prose that is not empty."""


Natural = Annotated[int, Field(ge=0)]


def whole(least: int, most: int) -> FieldInfo:
    bounds: FieldInfo = Field(ge=least, le=most)
    return bounds


def _quantity(value: object) -> Fraction:
    if isinstance(value, str):
        return quantity(value)
    amount = _number(value, "a quantity", "write it like 500m, 96, 1.5Gi or 2Ti")
    if amount < 0:
        raise InvalidValueError("a quantity cannot be negative", "a quantity is zero or more")
    if amount > MAX_AMOUNT:
        raise InvalidValueError("this quantity is too large", f"the most is {MAX_AMOUNT:,}")
    return amount


def _number(value: object, expected: str, hint: str) -> Fraction:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return exact(value)
    raise InvalidValueError(f"expected {expected}, not {described(value)}", hint)


_QUANTITY = WithJsonSchema(
    {
        "anyOf": [{"type": "string"}, {"type": "number", "minimum": 0, "maximum": MAX_AMOUNT}],
        "description": "A Kubernetes quantity such as 500m, 96, 1.5Gi or 2Ti",
    }
)

Quantity = Annotated[Fraction, PlainValidator(_quantity), _QUANTITY]
"""A Kubernetes quantity, exact."""


def _in_MiB(  # noqa: N802  # a unit
    rounded: Callable[[Fraction], int],
) -> tuple[PlainValidator, PlainSerializer, WithJsonSchema]:
    def read(value: object) -> int:
        found = rounded(_quantity(value) / 2**20)
        if not found:
            raise InvalidValueError("less than 1Mi of memory", "write it like 12Gi")
        return found

    text = PlainSerializer(lambda amount: f"{amount}Mi", return_type=str)
    return PlainValidator(read), text, _QUANTITY


RequestedMiB = Annotated[int, *_in_MiB(math.ceil)]
"""Memory in MiB, written as a quantity, rounded up."""

OfferedMiB = Annotated[int, *_in_MiB(math.floor)]
"""The same, rounded down."""


def _in_units(units: Callable[[str, Fraction], int]) -> AfterValidator:
    def convert(amounts: dict[str, Fraction]) -> dict[str, int]:
        return {name: units(name, value) for name, value in amounts.items()}

    return AfterValidator(convert)


_Amounts = Mapped[LabelKey, Annotated[int, PlainValidator(_quantity), _QUANTITY]]
_TEXTS = PlainSerializer(
    lambda amounts: {name: quantity_text(name, units) for name, units in amounts.items()},
    return_type=dict[str, str],
)

Requested = Annotated[_Amounts, _in_units(requested), _TEXTS]
"""Amounts by resource, written as quantities: millicores of cpu, others in whole units, rounded up."""

Offered = Annotated[_Amounts, _in_units(offered), _TEXTS]
"""The same, rounded down."""


def decimal_check(least: int | Fraction, most: int | Fraction) -> Callable[[object], Fraction]:
    """Reader of an exact decimal between two bounds, of at most MAX_DIGITS digits."""
    limits = f"from {number(Fraction(least))} to {number(Fraction(most))}"

    def check(value: object) -> Fraction:
        amount = _number(value, "a number", f"write a number {limits}, unquoted")
        if not least <= amount <= most:
            raise InvalidValueError(f"{described(value)} is out of range", f"it must be {limits}")
        digits = significant_digits(amount)
        if digits is None or digits > MAX_DIGITS or amount.denominator > 10**MAX_DIGITS:
            raise InvalidValueError("this number has too many digits", f"the most is {MAX_DIGITS}")
        return amount

    return check


def above_zero(what: str, hint: str) -> AfterValidator:

    def check(value: Fraction) -> Fraction:
        if not value:
            raise InvalidValueError(what, hint)
        return value

    return AfterValidator(check)


def decimal(
    least: int | Fraction, most: int | Fraction
) -> tuple[PlainValidator, PlainSerializer, WithJsonSchema]:
    """Annotations of an exact decimal between two bounds."""
    bounds = {"minimum": number(Fraction(least)), "maximum": number(Fraction(most))}
    schema = WithJsonSchema({"type": "number", **bounds})
    return PlainValidator(decimal_check(least, most)), PlainSerializer(number), schema


def positive(
    most: int, what: str, hint: str
) -> tuple[PlainValidator, AfterValidator, PlainSerializer, WithJsonSchema]:
    """Annotations of an exact decimal above 0."""
    schema = WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": most})
    read = PlainValidator(decimal_check(0, most))
    return read, above_zero(what, hint), PlainSerializer(number), schema


MAX_GPUS = 1_000_000_000


def _gpu_amount(value: object) -> float:
    amount = _number(value, "a number of GPUs", "write it like 8 or 0.5, unquoted")
    if not 0 <= amount <= MAX_GPUS:
        size, least = ("small", "0 or more") if amount < 0 else ("large", f"at most {MAX_GPUS:,}")
        raise InvalidValueError(f"{described(value)} is too {size}", f"write {least}")
    if 1000 % amount.denominator:
        what = f"{described(value)} is not in thousandths of a GPU"
        raise InvalidValueError(what, "write at most three decimals")
    return number(amount)


GpuAmount = Annotated[
    float,
    PlainValidator(_gpu_amount),
    PlainSerializer(lambda gpus: gpus),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_GPUS, "multipleOf": 0.001}),
]
"""GPUs, to thousandths; whole ones are integers, others the float that prints as they do."""


def _parsed(
    parse: Callable[[str], int], text: Callable[[int], str], expected: str, hint: str, **schema: str
) -> tuple[PlainValidator, PlainSerializer, WithJsonSchema]:
    def check(value: object) -> int:
        if not isinstance(value, str):
            raise InvalidValueError(f"expected {expected}, not {described(value)}", hint)
        return parse(value)

    form = WithJsonSchema({"type": "string", **schema})
    return PlainValidator(check), PlainSerializer(text), form


DURATION = "A duration such as 90m, 6h, 1h30m"
_LIKE = "write it like 90m, 6h, 1h30m or 21600s"
Duration = Annotated[
    int, *_parsed(seconds, duration_text, "a duration", _LIKE, description=DURATION)
]
"""Whole seconds."""

_LIKE = "write it like 2026-11-20T08:00:00Z"
Time = Annotated[
    int, *_parsed(epoch_seconds, time_text, "an RFC 3339 time", _LIKE, format="date-time")
]
"""Seconds since 1970, UTC."""


_ALL_LISTED = 24
"""Most names that a hint lists in full; of more, it lists the first _LISTED."""
_LISTED = 8
_SIMILAR = 3
_SHORTEST_PART = 2  # T4 is a name


_DIGITS = re.compile(r"\d+")

MAX_COMPARED = 500
"""Most names before a word, and after it in their order, that are compared with it."""


def _plain(name: str) -> str:
    """The name without leading zeros of its numbers."""
    return _DIGITS.sub(lambda digits: digits[0].lstrip("0") or "0", name.lower())


def suggestion(word: str, known: Iterable[str], called: str = "known") -> str:
    """``did you mean 'rack'?``, or ``known: block, rack``; ``called`` introduces the list.

    A name that differs only in zeros before a number, or in case, goes before the others.
    """
    options = sorted(set(known))
    meant = _plain(word[:100])
    if same := [option for option in options if _plain(option) == meant]:
        return f"did you mean {shown(same[0])}?"
    compared = options
    if len(options) > 2 * MAX_COMPARED:
        at = bisect.bisect(options, word)
        compared = options[max(0, at - MAX_COMPARED) : at + MAX_COMPARED]
    if near := _nearest(word, compared):
        return f"did you mean {shown(near[0])}?"
    if not options:
        return f"{called}: none"
    first = options if len(options) <= _ALL_LISTED else options[: shown_of(len(options), _LISTED)]
    more = f" and {len(options) - len(first)} more" if len(options) > len(first) else ""
    # A name that contains a comma would look like two names.
    listed = (shown(option) if "," in option else option for option in first)
    return f"{called}: {', '.join(listed)}{more}"


def similar(word: str, known: Iterable[str]) -> list[str]:
    """Known names that contain the word, ignoring blanks, dashes and case; else the nearest; at most 3.

    For product names, of which people write one part: GB200, dgx1, MI300X.
    """
    names = sorted(set(known))
    part = _squeezed(word[:100])
    found = [name for name in names if part in _squeezed(name)]
    if len(part) < _SHORTEST_PART or not found:
        return _nearest(word, names)
    found.sort(key=lambda name: (not _squeezed(name).startswith(part), len(name), name))
    return found[:_SIMILAR]


def _nearest(word: str, names: Iterable[str]) -> list[str]:
    """The name most like the word, if any is like it. ``names``: sorted."""
    import difflib  # slow to import, and only errors need it

    folded = {name.lower(): name for name in reversed(list(names))}
    near = difflib.get_close_matches(word[:100].lower(), folded, n=1, cutoff=0.6)
    return [folded[match] for match in near]


def _squeezed(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
