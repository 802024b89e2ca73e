"""Checks of parameters and answers against a schema in the manner of PVE::JSONSchema.

Sources: pve-common, PVE/JSONSchema.pm: check_type, check_object, check_prop, check_format, parse_property_string,
print_property_string, parse_size, format_size, parse_boolean.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from errors import ApiError

Errors = dict[str, str]


@dataclass(frozen=True)
class Prop:
    """Schema of one value. `closed` objects refuse properties that they do not list."""

    type: str
    optional: bool = False
    minimum: float | None = None
    maximum: float | None = None
    max_length: int | None = None
    enum: tuple[str, ...] = ()
    pattern: str = ""
    format: "str | dict[str, Prop]" = ""
    requires: str = ""
    alias: str = ""
    default_key: bool = False
    properties: "dict[str, Prop]" = field(default_factory=dict)
    items: "Prop | None" = None
    closed: bool = False


def string(**more: Any) -> Prop:
    return Prop("string", **more)


def integer(**more: Any) -> Prop:
    return Prop("integer", **more)


def number(**more: Any) -> Prop:
    return Prop("number", **more)


def boolean(**more: Any) -> Prop:
    return Prop("boolean", **more)


def record(properties: dict[str, Prop], **more: Any) -> Prop:
    return Prop("object", properties=properties, **more)


def array(items: Prop) -> Prop:
    return Prop("array", items=items)


def choice(*values: str, **more: Any) -> Prop:
    return Prop("string", enum=values, **more)


NULL = Prop("null")

STORAGE_ID = r"(?i:[a-z][a-z0-9\-_.]*[a-z0-9])"
CONFIG_ID = r"(?i:[a-z][a-z0-9_-]+)"
NODE = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-]*[a-zA-Z0-9])?"
VOLUME_ID = rf"{STORAGE_ID}:[^\s,]+"
CONTENT = ("images", "rootdir", "iso", "vztmpl", "backup", "snippets", "import", "none")


def _pattern(pattern: str, message: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if not re.fullmatch(pattern, value):
            raise ValueError(message.replace("%", value))

    return check


# The formats that the endpoints here use, each with the message of its check.
FORMATS: dict[str, Callable[[str], None]] = {
    "pve-vmid": _pattern(r"[1-9][0-9]{2,8}", "value does not look like a valid VM ID"),
    "pve-node": _pattern(NODE, "value does not look like a valid node name"),
    "pve-storage-id": _pattern(STORAGE_ID, "storage ID '%' contains illegal characters"),
    "pve-configid": _pattern(CONFIG_ID, "invalid configuration ID '%'"),
    "pve-storage-content": _pattern("|".join(CONTENT), "invalid content type '%'"),
    "pve-task-status-type": _pattern(r"(?i:ok|error|warning|unknown)", "invalid status '%'"),
    "pve-volume-id": _pattern(VOLUME_ID, "unable to parse volume ID '%'"),
    "pve-volume-id-or-qm-path": _pattern(
        rf"none|cdrom|/.*|(?:{STORAGE_ID}:)?\d+(?:\.\d+)?|{VOLUME_ID}", "unable to parse volume ID '%'"
    ),
    "disk-size": _pattern(r"\d+(\.\d+)?[KMGT]?", "value does not look like a valid disk size: %"),
    "dns-name": _pattern(
        r"([a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?",
        "value does not look like a valid DNS name",
    ),
    "urlencoded": _pattern(r"[-%a-zA-Z0-9_.!~*'()]*", "value is not URL encoded"),
    "pve-tag": _pattern(r"(?i:[a-z0-9_][a-z0-9_\-+.]*)", "invalid characters in tag"),
    "pve-ha-resource-or-vm-id": _pattern(
        r"(?:(?:vm|ct):)?[1-9][0-9]{2,8}", "value does not look like a valid HA resource ID"
    ),
}


def split_list(value: str) -> list[str]:
    return [part for part in re.split(r"[,;\0\s]+", value) if part]


def check_format(form: "str | dict[str, Prop]", value: str) -> None:
    if isinstance(form, dict):
        parse_property_string(form, value)
        return
    if form.endswith("-list"):
        for part in split_list(value):
            FORMATS[form[:-5]](part)
    else:
        FORMATS[form](value)


def parse_size(value: str) -> int | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])?", value)
    if not found:
        return None
    return int(float(found[1]) * 1024 ** (" KMGT".index(found[2]) if found[2] else 0))


def format_size(size: int) -> str:
    for unit in ("", "K", "M", "G"):
        if size % 1024 or not size:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}T"


def parse_boolean(value: str) -> str:
    lower = value.lower()
    return "1" if lower in ("1", "on", "yes", "true") else "0" if lower in ("0", "off", "no", "false") else value


def parse_property_string(form: dict[str, Prop], data: str) -> dict[str, str]:
    """Splits `key=value,…`. Raises ValueError with the message of the source."""
    result: dict[str, str] = {}
    for part in data.split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if equals and key and value:
            if key in result:
                raise ValueError(f"duplicate key in comma-separated list property: {key}")
            prop = form.get(key)
            if prop and prop.alias:
                key, prop = prop.alias, form[prop.alias]
            if not prop:
                raise ValueError(f"invalid key in comma-separated list property: {key}")
            result[key] = parse_boolean(value) if prop.type == "boolean" else value
        elif not equals:
            default = next((name for name, prop in form.items() if prop.default_key), None)
            if not default:
                raise ValueError("value without key, but schema does not define a default key")
            if default in result:
                raise ValueError(f"duplicate key in comma-separated list property: {default}")
            result[default] = part
        else:
            raise ValueError("missing key in comma-separated list property")
    errors: Errors = {}
    check_object("", form, result, True, errors)
    if errors:
        raise ValueError("format error\n" + "".join(f"{path}: {text}\n" for path, text in errors.items()))
    return result


def print_property_string(form: dict[str, Prop], data: dict[str, str]) -> str:
    """Default key first, then required keys, then the rest, each sorted."""
    default = next((name for name, prop in form.items() if prop.default_key), None)
    parts = [data[default]] if default in data else []
    rest = sorted(key for key in data if key != default)
    parts += [f"{key}={data[key]}" for key in rest if not form[key].optional]
    parts += [f"{key}={data[key]}" for key in rest if form[key].optional]
    return ",".join(parts)


def add_error(errors: Errors, path: str, message: str) -> None:
    path = path or "_root"
    errors[path] = f"{errors[path]}\\n{message}" if path in errors else message


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _type_error(kind: str, value: Any) -> str | None:
    """Message if a value is not of a type. Parameters arrive as text, so text is checked by its form."""
    if kind == "null":
        return None if value is None else "type check ('null') failed - value is not null"
    if kind in ("array", "object"):
        return None if isinstance(value, list if kind == "array" else dict) else f"type check ('{kind}') failed"
    if isinstance(value, (list, dict)):
        return f"type check ('{kind}') failed - got {'ARRAY' if isinstance(value, list) else 'HASH'}"
    text = _text(value)
    forms = {"boolean": r"[01]", "integer": r"[+-]?\d+", "number": r"[+-]?(\d+\.\d+|\d+\.|\.\d+|\d+)([eE][+-]?\d+)?"}
    if kind in forms and not re.fullmatch(forms[kind], text):
        return f"type check ('{kind}') failed - got '{text}'"
    return None


def check_object(path: str, properties: dict[str, Prop], value: dict[str, Any], closed: bool, errors: Errors) -> None:
    for key, prop in properties.items():
        check_prop(f"{path}.{key}" if path else key, prop, value.get(key), errors)
    for key in value:
        here = f"{path}.{key}" if path else key
        if key not in properties:
            if closed:
                add_error(
                    errors,
                    here,
                    "property is not defined in schema and the schema does not allow additional properties",
                )
        elif (needed := properties[key].requires) and value.get(needed) is None:
            add_error(
                errors, f"{path}.{needed}" if path else needed, f"missing property - '{here}' requires this property"
            )


def check_prop(path: str, prop: Prop, value: Any, errors: Errors) -> None:
    if value is None:
        if prop.type != "null" and not prop.optional and not prop.alias:
            add_error(errors, path, "property is missing and it is not optional")
        return
    if problem := _type_error(prop.type, value):
        add_error(errors, path, problem)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if prop.items:
                check_prop(f"{path}[{index}]", prop.items, item, errors)
    elif isinstance(value, dict):
        if prop.properties or prop.closed:
            check_object(path, prop.properties, value, prop.closed, errors)
    elif problem := _value_error(prop, _text(value)):
        add_error(errors, path, problem)


def _value_error(prop: Prop, text: str) -> str | None:
    if prop.format:
        try:
            check_format(prop.format, text)
        except ValueError as error:
            return f"invalid format - {error}\n"
    if prop.pattern and not re.fullmatch(prop.pattern, text):
        return "value does not match the regex pattern"
    if prop.max_length is not None and len(text) > prop.max_length:
        return f"value may only be {prop.max_length} characters long"
    if _type_error("number", text) is None:
        if prop.maximum is not None and float(text) > prop.maximum:
            return f"value must have a maximum value of {prop.maximum}"
        if prop.minimum is not None and float(text) < prop.minimum:
            return f"value must have a minimum value of {prop.minimum}"
    if prop.enum and text not in prop.enum:
        return f"value '{text}' does not have a value in the enumeration '{', '.join(prop.enum)}'"
    return None


def validate(prop: Prop, value: Any, message: str, status: int) -> None:
    """Raises an ApiError that names each property that breaks the schema."""
    errors: Errors = {}
    check_prop("", prop, value, errors)
    if errors:
        raise ApiError(message, status, errors)
