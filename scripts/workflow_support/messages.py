"""Say something to the person who called Snakemake, or end the call with a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from snakemake.logging import logger

from contracts.errors import ConfigError
from terminal.snakemake_words import OURS

T = TypeVar("T")


def tell(message: str, **extra: Any) -> None:
    """Say something that people need to see without --verbose."""
    logger.info(message, extra={OURS.needed: True, **extra})


def stop(message: str) -> NoReturn:
    """End this call with a message and nothing else: Snakemake adds a traceback to every exception but this one."""
    logger.error(message)
    raise SystemExit(1)


def explained(function: Callable[..., T], *args: Any) -> T:
    """Return what the function returns. Where it finds a user's mistake, end this call with its message."""
    try:
        return function(*args)
    except ConfigError as error:
        stop(str(error))
