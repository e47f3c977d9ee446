"""Options of a command from a TOML file, checked as strictly as those of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loader.errors import LoaderError


def read_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Callback of an eager `--config`: makes the file's values the other options' defaults.

    Raises LoaderError, naming the file and the key.
    """
    if path is None:
        return
    import tomllib

    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        tried = f"read the configuration {path}"
        raise LoaderError.from_os_error(tried, error, "check the path of --config") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise _wrong(path, str(error)) from None
    options = {
        name.lstrip("-"): parameter
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.expose_value
        for name in parameter.opts
    }
    context.default_map = {
        str(_known(path, options, key).name): _checked(path, context, options[key], key, value)
        for key, value in values.items()
    }


def _wrong(path: Path, said: str) -> LoaderError:
    remedy = "correct the file; `bpf-gpu-server serve --help` lists the options"
    return LoaderError(f"use the configuration {path}", said, remedy)


def _known(path: Path, options: dict[str, click.Option], key: str) -> click.Option:
    if key in options:
        return options[key]
    import difflib

    near = difflib.get_close_matches(key, options, 1)
    raise _wrong(path, f"unknown key {key!r}" + (f", did you mean {near[0]!r}?" if near else ""))


def _checked(path: Path, context: click.Context, option: click.Option, key: str, value: Any) -> Any:
    """The value, when TOML's type is the option's (1.5 is no port) and the option takes it."""
    items = value if option.multiple and isinstance(value, list) else [value]
    kind: type = str
    if option.is_flag:
        kind = bool
    elif isinstance(option.type, click.types.IntParamType):
        kind = int
    if not all(type(item) is kind for item in items):
        raise _wrong(path, f"{key} = {value!r} is not of type {kind.__name__}")
    try:
        for item in items:
            option.type.convert(item, option, context)
    except click.BadParameter as error:
        raise _wrong(path, f"{key}: {error.message}") from None
    return items if option.multiple else value
